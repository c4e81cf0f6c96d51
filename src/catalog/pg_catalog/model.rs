//! What the catalog is computed from, and the one list of relations that all its tables share.

use std::fmt::Debug;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use datafusion::arrow::datatypes::SchemaRef;

use super::backends::{Backend, Backends};
use super::indexes::Index;
use super::notifications::Outbox;
use super::relation::{Specification, catalog_type_oid};
use super::specifications::{INFORMATION_SCHEMA, RELATIONS};
use super::types::{TYPES, sql_name, type_name};
use crate::catalog::access::role::BOOTSTRAP_OID;
use crate::catalog::access::{Access, ObjectKey, Subject};
use crate::catalog::definition::{CatalogObject, ColumnDefinition, Definition};
use crate::catalog::function::FunctionDefinition;
use crate::catalog::system_tables;
use crate::catalog::temporary::{TEMPORARY_SCHEMA, TEMPORARY_SCHEMA_SHOWN};
use crate::clock::ClockRef;
use crate::error::Result;
use crate::sql::render::present_query;
use crate::types::{DEFAULT_NUMERIC, SqlType};

/// The database's objects as a session sees them.
pub trait ObjectModel: Send + Sync + Debug {
    /// Every object, in the order of their names.
    fn objects(&self) -> Vec<Arc<CatalogObject>>;
    /// Grows with every change of a definition; shown as `xmin`.
    fn version(&self) -> u64;
    /// The `SELECT` of a view, for `pg_get_viewdef`: the stored text, under the names of now.
    fn view_text(&self, object: &CatalogObject) -> Option<String> {
        present_query(object)
    }
    /// Rows of a relation, where that is known without counting.
    fn row_estimate(&self, oid: u32) -> Option<u64> {
        let _ = oid;
        None
    }
    /// Bytes on disk of a relation.
    fn size_bytes(&self, oid: u32) -> Option<u64> {
        let _ = oid;
        None
    }
    /// Roles, owners and grants.
    fn access(&self) -> Arc<Access> {
        Arc::default()
    }
    /// As whom the statement runs.
    fn subject(&self) -> Arc<Subject> {
        Arc::new(Subject::system())
    }
    /// `session_user`.
    fn session_role(&self) -> u32 {
        BOOTSTRAP_OID
    }
    /// Functions in SQL, by signature.
    fn functions(&self) -> Vec<Arc<FunctionDefinition>> {
        Vec::new()
    }
    /// System tables (`streaming_queries`, …) with their columns.
    fn system_tables(&self) -> Vec<(String, SchemaRef)> {
        Vec::new()
    }
}

/// A session parameter as `pg_settings` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Parameter {
    pub name: String,
    pub value: String,
    pub unit: Option<&'static str>,
    pub context: &'static str,
    pub vartype: &'static str,
    pub reset_value: String,
    pub boot_value: String,
    pub description: &'static str,
}

/// A session's parameters, for `current_setting`, `set_config` and `pg_settings`.
pub trait Parameters: Send + Sync + Debug {
    /// Current value; `None`: no such parameter.
    fn get(&self, name: &str) -> Option<String>;
    /// Sets it (for the transaction when `is_local`); the value as it is kept.
    fn set(&self, name: &str, value: Option<&str>, is_local: bool) -> Result<String>;
    /// All of them, by name.
    fn all(&self) -> Vec<Parameter>;
    /// A parameter that is a time, such as `lock_timeout`; `None`: off.
    fn duration(&self, name: &str) -> Option<Duration>;
}

/// What the catalog knows of the session that asks.
#[derive(Debug, Clone)]
pub struct SessionFacts {
    /// user name
    pub user: String,
    /// the session's own entry
    pub backend: Arc<Backend>,
    /// everyone connected
    pub backends: Arc<Backends>,
    /// what its transaction notifies
    pub outbox: Outbox,
    /// its parameters
    pub parameters: Arc<dyn Parameters>,
    /// where time comes from
    pub clock: ClockRef,
    /// when the server started, microseconds since the epoch
    pub started_at_us: i64,
}

/// What is the same for every session is read once.
static SYSTEM_RELATIONS: LazyLock<Vec<Specification>> = LazyLock::new(|| specified_in(RELATIONS));
static INFORMATION_VIEWS: LazyLock<Vec<Specification>> =
    LazyLock::new(|| specified_in(INFORMATION_SCHEMA));
static BUILT_IN_TYPES: LazyLock<Vec<PgType>> =
    LazyLock::new(|| TYPES.lines().map(parse_type).collect());

fn specified_in(text: &str) -> Vec<Specification> {
    text.lines().map(Specification::parse).collect()
}

/// OID of the role that owns everything.
pub(super) const OWNER_OID: i64 = 10;
/// `pg_catalog`
pub(super) const PG_CATALOG_OID: i64 = 11;
/// OID of the foreign server that all streams are of.
pub(super) const STREAM_SERVER_OID: i64 = 13_400;
/// OID of that server's wrapper.
pub(super) const STREAM_WRAPPER_OID: i64 = 13_401;
/// `public`
pub(super) const PUBLIC_OID: i64 = 2_200;
/// `information_schema`
pub(super) const INFORMATION_SCHEMA_OID: i64 = 13_207;
/// The system tables once more
pub(super) const SYSTEM_SCHEMA_OID: i64 = 13_208;
/// The session's temporary tables
pub(super) const TEMPORARY_OID: i64 = 13_300;
/// OIDs of the system tables start here, first those in `pg_catalog`.
const SYSTEM_TABLE_OID: i64 = 13_500;
const SYSTEM_SCHEMA_TABLE_OID: i64 = 13_700;
/// A primary key's index and constraint have their table's OID plus these.
const KEY_INDEX_OFFSET: i64 = 1 << 30;
const KEY_CONSTRAINT_OFFSET: i64 = 1 << 29;

/// A namespace: OID and name.
pub(super) const NAMESPACES: &[(i64, &str)] = &[
    (PG_CATALOG_OID, "pg_catalog"),
    (PUBLIC_OID, "public"),
    (INFORMATION_SCHEMA_OID, "information_schema"),
    (SYSTEM_SCHEMA_OID, system_tables::SCHEMA),
    (TEMPORARY_OID, TEMPORARY_SCHEMA_SHOWN),
];

/// Name of a namespace.
pub(super) fn namespace_name(oid: i64) -> Option<&'static str> {
    NAMESPACES
        .iter()
        .find(|(o, _)| *o == oid)
        .map(|(_, name)| *name)
}

/// A column of any relation.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub name: String,
    pub type_oid: i64,
    pub type_modifier: i64,
    pub not_null: bool,
    pub default: Option<String>,
    pub comment: Option<String>,
}

/// Anything with a row in `pg_class`.
#[derive(Debug, Clone)]
pub(super) struct Relation {
    pub oid: i64,
    pub name: String,
    pub namespace: i64,
    /// `r`, `m`, `v`, `i`
    pub kind: char,
    pub columns: Vec<Column>,
    pub comment: Option<String>,
    /// Positions of the primary key's columns, from 1.
    pub key: Vec<i64>,
    /// The `SELECT` of a view.
    pub view_text: Option<String>,
    /// Names of the relations a view reads.
    pub reads: Vec<String>,
    /// Rows can be inserted.
    pub insertable: bool,
    pub owner: i64,
    pub row_estimate: Option<u64>,
}

impl Relation {
    /// OID of the primary key's index.
    pub fn key_index_oid(&self) -> i64 {
        self.oid + KEY_INDEX_OFFSET
    }

    /// OID of the primary key's constraint.
    pub fn key_constraint_oid(&self) -> i64 {
        self.oid + KEY_CONSTRAINT_OFFSET
    }

    /// Name of the primary key's index and constraint.
    pub fn key_name(&self) -> String {
        format!("{}_pkey", self.name)
    }

    /// Names of the primary key's columns.
    pub fn key_columns(&self) -> Vec<&str> {
        self.key
            .iter()
            .filter_map(|n| self.columns.get(usize::try_from(*n).ok()? - 1))
            .map(|column| column.name.as_str())
            .collect()
    }

    /// `p` or `t`
    pub fn persistence(&self) -> &'static str {
        match self.namespace {
            TEMPORARY_OID => "t",
            _ => "p",
        }
    }

    /// Its schema is on the search path; the system tables are found in `pg_catalog`.
    pub fn is_on_path(&self) -> bool {
        !matches!(self.namespace, INFORMATION_SCHEMA_OID | SYSTEM_SCHEMA_OID)
    }

    /// A row of the user's, not of the system.
    pub fn is_users(&self) -> bool {
        self.namespace == PUBLIC_OID
    }
}

/// A row of `pg_type`.
#[derive(Debug, Clone)]
pub(super) struct PgType {
    pub oid: i64,
    pub name: String,
    /// The remaining columns of the line.
    pub words: Vec<String>,
}

impl PgType {
    /// `typlen`
    pub fn length(&self) -> i64 {
        self.number(0)
    }

    /// `typelem`
    pub fn element(&self) -> i64 {
        self.number(6)
    }

    /// `typarray`
    pub fn array(&self) -> i64 {
        self.number(7)
    }

    /// `typcollation`
    pub fn collation(&self) -> i64 {
        self.number(14)
    }

    /// A column that is a number.
    pub fn number(&self, at: usize) -> i64 {
        self.words[at]
            .parse()
            .expect("a type's numbers are written as numbers")
    }
}

/// Everything the tables and functions read.
#[derive(Debug)]
pub(super) struct Catalog {
    pub model: Arc<dyn ObjectModel>,
    pub facts: SessionFacts,
    pub system_relations: &'static [Specification],
    pub information_views: &'static [Specification],
    pub types: &'static [PgType],
}

impl Catalog {
    /// Over a model, for a session.
    pub fn new(model: Arc<dyn ObjectModel>, facts: SessionFacts) -> Self {
        Self {
            model,
            facts,
            system_relations: &SYSTEM_RELATIONS,
            information_views: &INFORMATION_VIEWS,
            types: &BUILT_IN_TYPES,
        }
    }

    /// Every relation: the user's, their keys' indexes, the system's.
    pub fn relations(&self) -> Vec<Relation> {
        self.relations_where(|_| true, |_| true)
    }

    /// The relations whose OID and name are wanted; of the system's, which are many, no others are made.
    fn relations_where(
        &self,
        wants_oid: impl Fn(i64) -> bool,
        wants_name: impl Fn(&str) -> bool,
    ) -> Vec<Relation> {
        let is_wanted = |oid: i64, name: &str| wants_oid(oid) && wants_name(name);
        let mut relations = self.user_relations();
        relations.extend(self.indexes().iter().map(index_relation));
        relations.retain(|relation| is_wanted(relation.oid, &relation.name));
        for (at, (name, schema)) in (0..).zip(self.model.system_tables()) {
            for (oid, namespace) in [
                (SYSTEM_SCHEMA_TABLE_OID + at, SYSTEM_SCHEMA_OID),
                (SYSTEM_TABLE_OID + at, PG_CATALOG_OID),
            ] {
                if is_wanted(oid, &name) {
                    relations.push(Relation {
                        namespace,
                        ..system_table(oid, name.clone(), &schema)
                    });
                }
            }
        }
        for (specifications, namespace) in [
            (self.system_relations, PG_CATALOG_OID),
            (self.information_views, INFORMATION_SCHEMA_OID),
        ] {
            let wanted = specifications.iter().filter(|s| is_wanted(s.oid, &s.name));
            relations.extend(wanted.map(|s| specified(s, namespace)));
        }
        relations
    }

    /// The namespaces that there are; that of temporary tables is there with the first of them.
    pub fn namespaces(&self) -> impl Iterator<Item = (i64, &'static str)> {
        let has_temporary = self.has_temporary();
        let namespaces = NAMESPACES.iter().copied();
        namespaces.filter(move |(oid, _)| *oid != TEMPORARY_OID || has_temporary)
    }

    /// The session has temporary tables.
    pub fn has_temporary(&self) -> bool {
        self.model.objects().iter().any(|o| o.is_temporary())
    }

    /// A temporary table is found under its name.
    pub fn is_hidden(&self, relation: &Relation) -> bool {
        let hides = |o: &Arc<CatalogObject>| o.is_temporary() && o.name == relation.name;
        relation.is_users() && self.model.objects().iter().any(hides)
    }

    /// The user's relations, temporary ones first; sinks are none.
    pub fn user_relations(&self) -> Vec<Relation> {
        let mut objects = self.model.objects();
        objects.sort_by_key(|object| !object.is_temporary());
        objects
            .iter()
            .filter_map(|object| self.user_relation(object))
            .collect()
    }

    fn user_relation(&self, object: &CatalogObject) -> Option<Relation> {
        let (kind, reads) = match &object.definition {
            // A stream's rows are elsewhere: PostgreSQL has foreign tables for that, and tools
            // tell them from tables.
            Definition::Stream(_) => ('f', Vec::new()),
            Definition::Table(_) => ('r', Vec::new()),
            Definition::MaterializedView(d) => ('m', d.depends_on.clone()),
            Definition::View(d) => ('v', d.depends_on.clone()),
            Definition::Sink(_) | Definition::Index(_) => return None,
        };
        let key = match &object.definition {
            Definition::Table(table) => table
                .primary_key
                .iter()
                .filter_map(|name| table.columns.iter().position(|c| c.name == *name))
                .map(|at| at as i64 + 1)
                .collect(),
            _ => Vec::new(),
        };
        let insertable = match &object.definition {
            Definition::Stream(stream) => stream.connector.is_none(),
            Definition::Table(table) => !table.options.contains_key("connector"),
            _ => false,
        };
        let is_view = matches!(
            object.definition,
            Definition::View(_) | Definition::MaterializedView(_)
        );
        Some(Relation {
            oid: object.oid.into(),
            name: object.name.clone(),
            namespace: match object.is_temporary() {
                true => TEMPORARY_OID,
                false => PUBLIC_OID,
            },
            kind,
            columns: object
                .columns()
                .iter()
                .map(|column| Column {
                    // Of a view, PostgreSQL says nothing.
                    not_null: !column.nullable && !is_view,
                    ..user_column(column)
                })
                .collect(),
            comment: object.comment.clone(),
            key,
            view_text: self.model.view_text(object),
            reads,
            insertable,
            owner: match object.is_temporary() {
                true => self.model.subject().role.into(),
                false => self.owner_of(&ObjectKey::Relation(object.oid)),
            },
            row_estimate: self.model.row_estimate(object.oid),
        })
    }

    /// A relation by OID.
    pub fn relation(&self, oid: i64) -> Option<Relation> {
        self.relations_where(|o| o == oid, |_| true)
            .into_iter()
            .next()
    }

    /// A relation by a name as SQL writes it: folded unless quoted, with or without its schema,
    /// or its OID in digits.
    pub fn relation_named(&self, text: &str) -> Option<Relation> {
        if let Ok(oid) = text.trim().parse::<i64>() {
            return self.relation(oid);
        }
        let (schema, name) = split_name(text)?;
        let named = self.relations_where(|_| true, |n| n == name);
        named.into_iter().find(|r| {
            let found_in = namespace_name(r.namespace);
            let schema_fits = match &schema {
                Some(schema) if schema == TEMPORARY_SCHEMA => r.namespace == TEMPORARY_OID,
                Some(schema) => found_in == Some(schema.as_str()),
                None => r.is_on_path(),
            };
            schema_fits
        })
    }

    /// A type by OID.
    pub fn type_by_oid(&self, oid: i64) -> Option<&PgType> {
        self.types.iter().find(|t| t.oid == oid)
    }

    /// A type by a name as SQL writes it (`text[]`, `int8`, `double precision`, `numeric(5,2)`).
    pub fn type_named(&self, text: &str) -> Option<&PgType> {
        let text = text.trim();
        if let Ok(oid) = text.parse::<i64>() {
            return self.type_by_oid(oid);
        }
        if let Some(item) = text.strip_suffix("[]") {
            let array = self.type_named(item)?.array();
            return self.type_by_oid(array);
        }
        let without_schema = text.strip_prefix("pg_catalog.").unwrap_or(text);
        let exact = self
            .types
            .iter()
            .find(|t| t.name == without_schema.trim_matches('"'));
        exact.or_else(|| {
            let folded = without_schema.to_lowercase();
            let plain = match (folded.find('('), folded.find(')')) {
                (Some(open), Some(close)) if open < close => {
                    format!("{}{}", folded[..open].trim_end(), &folded[close + 1..])
                }
                _ => folded,
            };
            let name = type_name(&plain).to_owned();
            self.types.iter().find(|t| t.name == name)
        })
    }

    /// What `format_type` says.
    pub fn format_type(&self, oid: i64, modifier: Option<i64>) -> String {
        let Some(found) = self.type_by_oid(oid) else {
            return if oid == 0 {
                "-".to_owned()
            } else {
                "???".to_owned()
            };
        };
        // int2vector and oidvector have elements too, but are types of their own.
        let is_array = found.name.starts_with('_') && found.element() != 0;
        if is_array {
            return format!("{}[]", self.format_type(found.element(), modifier));
        }
        let name = sql_name(&found.name);
        match (found.oid, modifier.filter(|m| *m >= 4)) {
            (1700, Some(m)) => {
                let scale = ((m - 4) & 0x7ff ^ 0x400) - 0x400;
                format!("numeric({},{scale})", (m - 4) >> 16 & 0xffff)
            }
            (1042 | 1043, Some(m)) => format!("{name}({})", m - 4),
            _ => name.to_owned(),
        }
    }
}

fn system_table(oid: i64, name: String, schema: &SchemaRef) -> Relation {
    let columns = schema
        .fields()
        .iter()
        .map(|field| {
            let sql_type = SqlType::from_field(field).unwrap_or(SqlType::Text);
            Column {
                name: field.name().clone(),
                type_oid: sql_type.pg_oid().into(),
                type_modifier: type_modifier(&sql_type),
                not_null: false,
                default: None,
                comment: None,
            }
        })
        .collect();
    Relation {
        columns,
        ..bare(oid, name, PG_CATALOG_OID, 'v')
    }
}

fn parse_type(line: &str) -> PgType {
    let mut words = line.split_whitespace().map(str::to_owned);
    let mut word = || {
        words
            .next()
            .expect("a type's line starts with oid and name")
    };
    let oid = word().parse().expect("a type's line starts with an oid");
    let name = word();
    PgType {
        oid,
        name,
        words: words.collect(),
    }
}

fn bare(oid: i64, name: String, namespace: i64, kind: char) -> Relation {
    Relation {
        oid,
        name,
        namespace,
        kind,
        columns: Vec::new(),
        comment: None,
        key: Vec::new(),
        view_text: None,
        reads: Vec::new(),
        insertable: false,
        owner: OWNER_OID,
        row_estimate: None,
    }
}

fn index_relation(index: &Index) -> Relation {
    let columns = index
        .columns
        .iter()
        .filter_map(|n| {
            let at = usize::try_from(*n).ok()?.checked_sub(1)?;
            index.relation.columns.get(at)
        })
        .map(|column| Column {
            default: None,
            comment: None,
            not_null: false,
            ..column.clone()
        })
        .collect();
    Relation {
        columns,
        comment: index.comment.clone(),
        ..bare(index.oid, index.name.clone(), index.relation.namespace, 'i')
    }
}

fn specified(specification: &Specification, namespace: i64) -> Relation {
    let columns = specification
        .columns
        .iter()
        // Not columns in PostgreSQL, so not told as such.
        .filter(|(name, _)| name != "xmin" && name != "tableoid")
        .map(|(name, catalog_type)| Column {
            name: name.clone(),
            type_oid: catalog_type_oid(catalog_type),
            type_modifier: -1,
            not_null: specification.kind == 'r' && name == "oid",
            default: None,
            comment: None,
        })
        .collect();
    Relation {
        columns,
        ..bare(
            specification.oid,
            specification.name.clone(),
            namespace,
            specification.kind,
        )
    }
}

fn user_column(column: &ColumnDefinition) -> Column {
    let (type_oid, type_modifier) = match column.text_type {
        Some(text_type) => (text_type.pg_oid(), text_type.modifier().into()),
        None => (column.sql_type.pg_oid(), type_modifier(&column.sql_type)),
    };
    Column {
        name: column.name.clone(),
        type_oid: type_oid.into(),
        type_modifier,
        not_null: !column.nullable,
        default: column.default.clone(),
        comment: column.comment.clone(),
    }
}

fn type_modifier(sql_type: &SqlType) -> i64 {
    match sql_type {
        SqlType::Numeric { precision, scale } if (*precision, *scale) != DEFAULT_NUMERIC => {
            (i64::from(*precision) << 16 | i64::from(*scale) & 0x7ff) + 4
        }
        SqlType::Array(item) => type_modifier(item),
        _ => -1,
    }
}

/// Schema and name of a possibly quoted, possibly qualified name; `None` when it is malformed.
pub(super) fn split_name(text: &str) -> Option<(Option<String>, String)> {
    let mut parts = Vec::new();
    let mut rest = text.trim();
    loop {
        let (part, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_part(quoted)?,
            None => {
                let end = rest.find('.').unwrap_or(rest.len());
                (rest[..end].trim().to_lowercase(), &rest[end..])
            }
        };
        if part.is_empty() {
            return None;
        }
        parts.push(part);
        match after.strip_prefix('.') {
            Some(after) => rest = after,
            None if after.trim().is_empty() => break,
            None => return None,
        }
    }
    let name = parts.pop()?;
    // A database name before the schema says nothing: there is one.
    Some((parts.pop(), name))
}

fn quoted_part(quoted: &str) -> Option<(String, &str)> {
    let mut part = String::new();
    let mut characters = quoted.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' if characters.peek().is_some_and(|(_, next)| *next == '"') => {
                characters.next();
                part.push('"');
            }
            '"' => return Some((part, &quoted[at + 1..])),
            c => part.push(c),
        }
    }
    None
}
