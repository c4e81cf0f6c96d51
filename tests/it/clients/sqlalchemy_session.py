"""SQLAlchemy: reflection through the inspector, Core and ORM, over psycopg 3, psycopg2 and asyncpg."""

import asyncio
import datetime
import decimal
import uuid
import warnings

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import postgresql as pg
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from session import DATABASE, HOST, PORT, USER, acheck, check, show

warnings.simplefilter("ignore")
URL = f"{USER}@{HOST}:{PORT}/{DATABASE}"


class Base(orm.DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "sa_customer"
    __table_args__ = {"comment": "who buys"}
    id: orm.Mapped[int] = orm.mapped_column(sa.BigInteger, primary_key=True, autoincrement=False)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(40), comment="as on the bill")
    balance: orm.Mapped[decimal.Decimal] = orm.mapped_column(sa.Numeric(12, 2), server_default=sa.text("0"))
    tags: orm.Mapped[list | None] = orm.mapped_column(pg.ARRAY(sa.Text))
    data: orm.Mapped[dict | None] = orm.mapped_column(pg.JSONB)
    key: orm.Mapped[uuid.UUID | None] = orm.mapped_column(sa.Uuid)
    since: orm.Mapped[datetime.datetime | None] = orm.mapped_column(sa.DateTime(timezone=True))
    orders: orm.Mapped[list["Order"]] = orm.relationship(
        primaryjoin="Customer.id == foreign(Order.customer)", order_by="Order.line", lazy="selectin")


class Order(Base):
    __tablename__ = "sa_order"
    id: orm.Mapped[int] = orm.mapped_column(sa.BigInteger, primary_key=True, autoincrement=False)
    line: orm.Mapped[int] = orm.mapped_column(sa.Integer, primary_key=True, autoincrement=False)
    customer: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    amount: orm.Mapped[float | None]
    done: orm.Mapped[bool | None]
    day: orm.Mapped[datetime.date | None]


def reflect(inspector):
    for schema in (None, "public"):
        check(f"tables {schema}", lambda: sorted(inspector.get_table_names(schema=schema)))
        check(f"views {schema}", lambda: sorted(inspector.get_view_names(schema=schema)))
        check(f"materialized {schema}", lambda: sorted(inspector.get_materialized_view_names(schema=schema)))
    check("schemas", lambda: "public" in inspector.get_schema_names())
    check("default schema", lambda: inspector.default_schema_name)
    for name in ("sa_customer", "sa_order", "sa_view", "sa_mv"):
        check(f"columns {name}", lambda: [{k: str(v) for k, v in sorted(c.items())} for c in inspector.get_columns(name)])
        check(f"pk {name}", lambda: inspector.get_pk_constraint(name))
        check(f"indexes {name}", lambda: inspector.get_indexes(name))
        check(f"fks {name}", lambda: inspector.get_foreign_keys(name))
        check(f"uniques {name}", lambda: inspector.get_unique_constraints(name))
        check(f"checks {name}", lambda: inspector.get_check_constraints(name))
        check(f"comment {name}", lambda: inspector.get_table_comment(name))
        check(f"has {name}", lambda: inspector.has_table(name))
    check("has not", lambda: inspector.has_table("nothing_here"))
    check("definition", lambda: bool(inspector.get_view_definition("sa_view")))
    check("enums", lambda: inspector.get_enums())
    check("sequences", lambda: inspector.get_sequence_names())
    check("multi", lambda: sorted(str(k) for k in inspector.get_multi_columns(kind=sa.engine.reflection.ObjectKind.ANY)))
    check("no such table", lambda: inspector.get_columns("nothing_here"))


def use(driver):
    engine = sa.create_engine(f"postgresql+{driver}://{URL}")
    show("driver", driver)
    check("create", lambda: Base.metadata.create_all(engine))
    check("again", lambda: Base.metadata.create_all(engine))
    with orm.Session(engine) as s:
        s.add(Customer(id=1, name="Ada", balance=decimal.Decimal("1.50"), tags=["a", "b"], data={"x": [1, 2]}, key=uuid.UUID(int=5),
                       since=datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)))
        s.add_all([Customer(id=n, name=f"c{n}", balance=decimal.Decimal(n)) for n in range(2, 30)])
        s.add_all([Order(id=n // 3, line=n % 3, customer=1 + n % 4, amount=n / 4, done=n % 2 == 0, day=datetime.date(2024, 1, 1 + n)) for n in range(20)])
        check("flush", lambda: s.commit())
        check("get", lambda: (lambda c: (c.name, c.balance, c.tags, c.data, c.key, c.since, len(c.orders)))(s.get(Customer, 1)))
        check("select", lambda: s.execute(sa.select(Customer.id, Customer.name).where(Customer.name.like("c2%")).order_by(Customer.id)).all())
        check("join", lambda: s.execute(
            sa.select(Customer.name, sa.func.count(), sa.func.sum(Order.amount)).join(Order, Order.customer == Customer.id)
            .group_by(Customer.name).order_by(Customer.name)).all())
        check("in", lambda: s.scalars(sa.select(Customer.id).where(Customer.id.in_([1, 5, 7])).order_by(Customer.id)).all())
        check("any", lambda: s.scalars(sa.select(Customer.id).where(Customer.tags.any("a"))).all())
        check("json", lambda: s.scalars(sa.select(Customer.data["x"][1].as_integer()).where(Customer.id == 1)).all())
        check("extract", lambda: s.execute(sa.select(sa.extract("year", Order.day)).limit(1)).all())
        check("case", lambda: s.execute(sa.select(sa.case((Order.done, "yes"), else_="no"), sa.func.count()).group_by(sa.text("1")).order_by(sa.text("1"))).all())
        check("window", lambda: s.execute(sa.select(Order.id, sa.func.row_number().over(partition_by=Order.customer, order_by=Order.id)).order_by(Order.id, Order.line).limit(5)).all())
        check("cte", lambda: s.execute(sa.select(sa.func.count()).select_from(sa.select(Order).where(Order.done).cte("d"))).all())
        check("page", lambda: s.scalars(sa.select(Customer.id).order_by(Customer.id.desc()).limit(3).offset(2)).all())
        check("update", lambda: s.execute(sa.update(Customer).where(Customer.id > 20).values(balance=Customer.balance + 1)).rowcount)
        check("returning", lambda: s.execute(sa.insert(Customer).values([{"id": 100, "name": "n"}, {"id": 101, "name": "m"}]).returning(Customer.id, Customer.balance)).all())
        check("upsert", lambda: s.execute(pg.insert(Customer).values(id=100, name="x").on_conflict_do_update(index_elements=["id"], set_={"name": "y"}).returning(Customer.name)).all())
        check("delete", lambda: s.execute(sa.delete(Order).where(Order.id == 0)).rowcount)
        check("nested", lambda: (s.begin_nested().rollback(), s.scalar(sa.select(sa.func.count()).select_from(Order)))[1])
        check("dirty", lambda: (setattr(s.get(Customer, 2), "name", "renamed"), s.flush(), s.scalar(sa.text("select name from sa_customer where id = 2")))[2])
        check("commit", lambda: s.commit())
        check("duplicate", lambda: (s.add(Order(id=1, line=1, customer=1)), s.flush()))
        s.rollback()
        check("stream", lambda: sum(len(p) for p in s.execute(sa.select(Customer.id).execution_options(yield_per=7)).partitions()))
        check("exists", lambda: s.scalar(sa.select(sa.exists().where(Customer.id == 100))))
    with engine.connect() as c:
        check("isolation", lambda: c.get_isolation_level())
        check("default isolation", lambda: c.default_isolation_level)
    with engine.connect().execution_options(isolation_level="SERIALIZABLE") as c:
        check("serializable", lambda: (c.get_isolation_level(), c.scalar(sa.text("select 1"))))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as c:
        check("view", lambda: c.execute(sa.text("create view sa_view as select id, name from sa_customer")) and None)
        check("materialized", lambda: c.execute(sa.text("create materialized view sa_mv as select customer, count(*) as n from sa_order group by customer")) and None)
        check("index", lambda: c.execute(sa.text("create index sa_mv_n on sa_mv (n desc, customer)")) and None)
        check("server version", lambda: c.dialect.server_version_info[:1])
    reflect(sa.inspect(engine))
    meta = sa.MetaData()
    check("reflect", lambda: (meta.reflect(engine, views=True), sorted(meta.tables))[1])
    check("reflected", lambda: [(c.name, str(c.type), c.nullable, c.primary_key) for c in meta.tables["sa_order"].columns])
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as c:
        check("drop views", lambda: [c.execute(sa.text(t)) and None for t in ("drop materialized view sa_mv", "drop view sa_view")])
    check("drop", lambda: Base.metadata.drop_all(engine))
    engine.dispose()


async def use_asyncpg():
    engine = create_async_engine(f"postgresql+asyncpg://{URL}")
    async with engine.begin() as c:
        await acheck("async create", c.run_sync(Base.metadata.create_all))
    async with AsyncSession(engine) as s:
        s.add_all([Customer(id=n, name=f"c{n}", balance=decimal.Decimal(n)) for n in range(1, 5)])
        await acheck("async flush", s.commit())
        async def names():
            return (await s.execute(sa.select(Customer.name, Customer.balance, Customer.tags).order_by(Customer.id))).all()
        await acheck("async select", names())
        async def streamed():
            return [row async for row in await s.stream_scalars(sa.select(Customer.id).order_by(Customer.id))]
        await acheck("async stream", streamed())
    async with engine.connect() as c:
        await acheck("async tables", c.run_sync(lambda sync: sorted(sa.inspect(sync).get_table_names())))
        await acheck("async columns", c.run_sync(lambda sync: [(x["name"], str(x["type"])) for x in sa.inspect(sync).get_columns("sa_customer")]))
    async with engine.begin() as c:
        await acheck("async drop", c.run_sync(Base.metadata.drop_all))
    await engine.dispose()


for name in ("psycopg", "psycopg2"):
    use(name)
asyncio.run(use_asyncpg())
