//! Plans that are used again: of queries that a session asks time after time.
//!
//! ```text
//!   query, types of its parameters ──► known? ──► plan with $n in it ──values put in──► physical plan
//!                                        │ no, or not valid any more
//!                                        └─► planned as ever; the second time it is kept
//! ```
//! To plan a look-up takes many times as long as to run it, and a dashboard asks the same for hours. A plan is kept
//! if it reads materialized views and system tables only (a table is planned at its rows), calls nothing that
//! is not a function of its arguments, and gives with values put in what planning with these values gives: the first
//! time both are made and compared. It holds while the session sees the same definitions, as the same role, under the
//! same settings. Absent: plans that sessions share. They hold the reading context of theirs.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::execution::{SessionState, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan, Volatility};
use datafusion::optimizer::Optimizer;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::sql::sqlparser::ast;
use parking_lot::Mutex;

use super::parameters::{Parameter, Typed};
use super::query::RowStream;
use super::relations::Relation;
use super::settings::Said;
use super::{Session, origins, planning, query, threads};
use crate::catalog::access::Subject;
use crate::catalog::snapshot::CatalogSnapshot;
use crate::catalog::system_tables;
use crate::engine::ReadContext;
use crate::error::Result;
use crate::types::SqlType;

/// Queries that a session knows, with or without a plan.
const KNOWN_MAX: usize = 32;

/// What a session has asked.
#[derive(Default)]
pub(super) struct ReusedPlans {
    /// The newest last.
    known: VecDeque<Known>,
    valid: Option<Arc<Valid>>,
}

/// What plans hold for.
struct Valid {
    catalog: Arc<CatalogSnapshot>,
    subject: Arc<Subject>,
    said: Said,
    state: SessionState,
    task: Arc<TaskContext>,
}

struct Known {
    query: ast::Query,
    types: Vec<SqlType>,
    plan: Reuse,
}

#[derive(Clone)]
enum Reuse {
    /// It was asked once.
    Once,
    /// Its plan cannot be kept.
    Never,
    Plan(Arc<Reusable>),
}

/// A plan to be used again.
struct Reusable {
    typed: Typed,
    schema: SchemaRef,
    /// The views that it scans: the name that each is kept under, and its identifier.
    views: Vec<(String, u32)>,
}

impl ReusedPlans {
    /// Forgets plans of before the session saw other definitions, or said something else.
    fn settle(&mut self, session: &Session) {
        let catalog = session.scope.catalog();
        let subject = session.scope.subject();
        let holds = self.valid.as_ref().is_some_and(|valid| {
            Arc::ptr_eq(&valid.catalog, &catalog)
                && Arc::ptr_eq(&valid.subject, &subject)
                && session.settings.are_as_said(&valid.said)
        });
        if !holds {
            self.valid = None;
            self.known
                .iter_mut()
                .for_each(|known| known.plan = Reuse::Once);
        }
    }

    /// What is known of a query; from now on that it was asked.
    fn look_up(&mut self, query: &ast::Query, types: &[SqlType]) -> Option<Reuse> {
        let mut known = self.known.iter();
        let known = known.find(|known| known.types == types && known.query == *query);
        if let Some(known) = known {
            return Some(known.plan.clone());
        }
        let surplus = (self.known.len() + 1).saturating_sub(KNOWN_MAX);
        self.known.drain(..surplus);
        self.known.push_back(Known {
            query: query.clone(),
            types: types.to_vec(),
            plan: Reuse::Once,
        });
        None
    }

    fn keep(&mut self, query: &ast::Query, types: &[SqlType], plan: Reuse) {
        let mut known = self.known.iter_mut();
        if let Some(known) = known.find(|known| known.types == types && known.query == *query) {
            known.plan = plan;
        }
    }
}

impl Session {
    /// Starts a query by a plan that is kept; `None`: it has none.
    pub(super) async fn start_reused(
        &self,
        query: &ast::Query,
        parameters: &[Parameter],
    ) -> Result<Option<(SchemaRef, RowStream)>> {
        if parameters.iter().any(|p| p.value.is_null()) {
            return Ok(None);
        }
        let types: Vec<SqlType> = parameters.iter().map(|p| p.sql_type.clone()).collect();
        let known = {
            let mut plans = self.reused_plans.lock();
            plans.settle(self);
            match plans.look_up(query, &types) {
                None | Some(Reuse::Never) => return Ok(None),
                Some(known) => known,
            }
        };
        let valid = self.valid();
        let reusable = match known {
            Reuse::Plan(reusable) => reusable,
            Reuse::Once | Reuse::Never => {
                let made = self.reusable(&valid.state, query, parameters).await;
                let made = made.map(Arc::new);
                let plan = made.clone().map_or(Reuse::Never, Reuse::Plan);
                self.reused_plans.lock().keep(query, &types, plan);
                match made {
                    Some(made) => made,
                    None => return Ok(None),
                }
            }
        };
        let reads = self.scope.reads(self.parts.engine());
        if !reusable.reads_as_planned(&reads) {
            return Ok(None);
        }
        let plan = reusable.with_values(&valid.state, parameters)?;
        let physical = threads::physical_plan_of(&valid.state, &plan).await?;
        let rows = threads::start_plan_in(&valid.state, Arc::clone(&valid.task), physical)?;
        let schema = Arc::clone(&reusable.schema);
        Ok(Some((schema.clone(), query::with_schema_of(rows, schema))))
    }

    /// What plans hold for that are made now.
    fn valid(&self) -> Arc<Valid> {
        let mut plans = self.reused_plans.lock();
        let valid = plans.valid.get_or_insert_with(|| {
            let state = self.planning_state();
            Arc::new(Valid {
                catalog: self.scope.catalog(),
                subject: self.scope.subject(),
                said: self.settings.said(),
                task: state.task_ctx(),
                state,
            })
        });
        Arc::clone(valid)
    }

    /// The plan of a query to be kept, if it can be. An error is told by who plans it as ever.
    async fn reusable(
        &self,
        state: &SessionState,
        query: &ast::Query,
        parameters: &[Parameter],
    ) -> Option<Reusable> {
        let types: Vec<_> = parameters
            .iter()
            .map(|p| Some(p.sql_type.clone()))
            .collect();
        let statement = planning::query_statement(query);
        let typed = Typed::plan(state, statement, &types).await.ok()?;
        let written = typed.clone().bind(parameters).ok()?;
        let bound = planning::analyzed(state, written.clone()).ok()?;
        let mut views = Vec::new();
        if !may_be_reused(&bound, &mut views).ok()? {
            return None;
        }
        let schema = origins::marked(planning::output_schema(&bound), &written, state);
        let typed = typed
            .try_map(|plan| threads::optimized(state, planning::analyzed(state, plan)?))
            .ok()?;
        let reusable = Reusable {
            typed,
            schema,
            views,
        };
        let with_values = reusable.with_values(state, parameters).ok()?;
        let as_ever = threads::optimized(state, bound).ok()?;
        let words = |plan: &LogicalPlan| plan.display_indent_schema().to_string();
        (words(&with_values) == words(&as_ever)).then_some(reusable)
    }
}

impl Reusable {
    /// No view is shown as it was before a replacement, and none has been replaced since.
    fn reads_as_planned(&self, reads: &ReadContext) -> bool {
        let mut views = self.views.iter();
        views.all(|(name, oid)| reads.shown(name, *oid).is_none())
    }

    fn with_values(&self, state: &SessionState, parameters: &[Parameter]) -> Result<LogicalPlan> {
        let plan = self.typed.clone().bind(parameters)?;
        if parameters.is_empty() || !has_constants_to_fold(&plan)? {
            return Ok(plan);
        }
        let simplify = Optimizer::with_rules(vec![Arc::new(SimplifyExpressions::new())]);
        Ok(simplify.optimize(plan, state, |_, _| {})?)
    }
}

/// A plan gives the same whenever it runs over the same rows. `views`: those that it scans.
fn may_be_reused(plan: &LogicalPlan, views: &mut Vec<(String, u32)>) -> Result<bool> {
    let (mut may, mut reads) = (true, false);
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::TableScan(scan) => {
                reads = true;
                may &= is_reused_scan(scan, views);
            }
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Join(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Union(_)
            | LogicalPlan::Distinct(_)
            | LogicalPlan::EmptyRelation(_)
            | LogicalPlan::Values(_) => {}
            _ => may = false,
        }
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                may &= is_reused_expression(part);
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(match may {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        })
    })?;
    Ok(may && reads)
}

fn is_reused_scan(scan: &TableScan, views: &mut Vec<(String, u32)>) -> bool {
    let Ok(provider) = source_as_provider(&scan.source) else {
        return false;
    };
    let any: &dyn Any = provider.as_ref();
    match any.downcast_ref::<Relation>().and_then(Relation::view) {
        Some(view) => {
            views.push((view.kept_name().to_owned(), view.oid));
            true
        }
        None => system_tables::is_system_table(any),
    }
}

fn is_reused_expression(expression: &Expr) -> bool {
    let is_fixed = |volatility: Volatility| volatility == Volatility::Immutable;
    match expression {
        Expr::ScalarFunction(call) => is_fixed(call.func.signature().volatility),
        Expr::AggregateFunction(call) => is_fixed(call.func.signature().volatility),
        Expr::ScalarVariable(..)
        | Expr::OuterReferenceColumn(..)
        | Expr::Exists(_)
        | Expr::InSubquery(_)
        | Expr::ScalarSubquery(_) => false,
        _ => true,
    }
}

/// Values were put where only an expression makes constants of them.
fn has_constants_to_fold(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                found |= match part {
                    Expr::Cast(cast) => matches!(cast.expr.as_ref(), Expr::Literal(..)),
                    Expr::TryCast(cast) => matches!(cast.expr.as_ref(), Expr::Literal(..)),
                    _ => false,
                };
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(found)
}

/// Behind a lock only because running rows cannot be shared between threads.
pub(super) type SharedPlans = Mutex<ReusedPlans>;

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::AsArray;
    use datafusion::arrow::datatypes::Int64Type;
    use datafusion::common::ScalarValue;
    use futures::TryStreamExt;

    use super::*;
    use crate::session::StatementResult;
    use crate::{Database, DatabaseOptions};

    async fn ask(session: &mut Session, sql: &str, values: &[i64]) -> Vec<i64> {
        let parameters: Vec<Parameter> = values
            .iter()
            .map(|value| Parameter::new(ScalarValue::Int64(Some(*value)), SqlType::BigInt))
            .collect();
        let statement = session.parse(sql).unwrap().remove(0).0;
        let result = session.execute(&statement, &parameters).await.unwrap();
        let StatementResult::Rows { stream, .. } = result else {
            return Vec::new();
        };
        let batches: Vec<_> = stream.try_collect().await.unwrap();
        let numbers = batches.iter().flat_map(|batch| {
            batch
                .column(0)
                .as_primitive::<Int64Type>()
                .values()
                .to_vec()
        });
        numbers.collect()
    }

    fn plans(session: &Session) -> usize {
        let plans = session.reused_plans.lock();
        let kept = |known: &&Known| matches!(known.plan, Reuse::Plan(_));
        plans.known.iter().filter(kept).count()
    }

    async fn database(dir: &tempfile::TempDir) -> Database {
        let database = Database::open(dir.path(), DatabaseOptions::default())
            .await
            .unwrap();
        database
            .execute(
                "CREATE STREAM s (k BIGINT, v BIGINT); CREATE TABLE t (k BIGINT PRIMARY KEY);
                 CREATE MATERIALIZED VIEW m WITH (trigger = 'continuous') AS
                   SELECT k, sum(v)::bigint AS total, count(*) AS n FROM s GROUP BY k;
                 INSERT INTO s VALUES (1, 10), (2, 20), (1, 1); FLUSH",
            )
            .await
            .unwrap();
        database
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_look_up_is_planned_once_and_reads_the_newest_batch() {
        let dir = tempfile::tempdir().unwrap();
        let database = database(&dir).await;
        let mut session = database.session("ada");
        let sql = "SELECT total FROM m WHERE k = $1";
        assert_eq!(ask(&mut session, sql, &[1]).await, [11]);
        assert_eq!(plans(&session), 0);
        assert_eq!(ask(&mut session, sql, &[1]).await, [11]);
        assert_eq!(plans(&session), 1);
        assert_eq!(ask(&mut session, sql, &[2]).await, [20]);
        assert_eq!(ask(&mut session, sql, &[3]).await, [0i64; 0]);
        database
            .execute("INSERT INTO s VALUES (2, 2); FLUSH")
            .await
            .unwrap();
        assert_eq!(ask(&mut session, sql, &[2]).await, [22]);
        assert_eq!(plans(&session), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn plans_hold_for_the_definitions_and_settings() {
        let dir = tempfile::tempdir().unwrap();
        let database = database(&dir).await;
        let mut session = database.session("ada");
        let sql = "SELECT count(*) FROM m WHERE total > 0";
        for _ in 0..2 {
            assert_eq!(ask(&mut session, sql, &[]).await, [2]);
        }
        assert_eq!(plans(&session), 1);
        ask(&mut session, "SET timezone = 'Asia/Tokyo'", &[]).await;
        assert_eq!(ask(&mut session, sql, &[]).await, [2]);
        database
            .execute(
                "ALTER MATERIALIZED VIEW m RENAME TO old;
                 CREATE MATERIALIZED VIEW m AS SELECT k, v AS total FROM s; FLUSH",
            )
            .await
            .unwrap();
        assert_eq!(ask(&mut session, sql, &[]).await, [3]);
        assert_eq!(ask(&mut session, sql, &[]).await, [3]);
        database
            .execute("DROP MATERIALIZED VIEW m; DROP MATERIALIZED VIEW old")
            .await
            .unwrap();
        let statement = session.parse(sql).unwrap().remove(0).0;
        let gone = session.execute(&statement, &[]).await.err().unwrap();
        assert_eq!(gone.sqlstate(), "42P01");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_hangs_on_more_than_rows_is_planned_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let database = database(&dir).await;
        let mut session = database.session("ada");
        for sql in [
            "SELECT count(*) FROM t",
            "SELECT count(*) FROM m WHERE now() > '2020-01-01'",
            "SELECT count(*) FROM m, t",
            "SELECT count(*) FROM s",
            "SELECT n FROM m WHERE random() < 2",
            "SELECT n FROM m WHERE k IN (SELECT k FROM t)",
            "SELECT n FROM m WHERE current_setting('timezone') = 'UTC'",
        ] {
            for _ in 0..3 {
                ask(&mut session, sql, &[]).await;
            }
            assert_eq!(plans(&session), 0, "{sql}");
        }
        // And the list of what is known has an end.
        for number in 0..100 {
            ask(
                &mut session,
                &format!("SELECT n FROM m WHERE k = {number}"),
                &[],
            )
            .await;
        }
        assert_eq!(session.reused_plans.lock().known.len(), KNOWN_MAX);
    }
}
