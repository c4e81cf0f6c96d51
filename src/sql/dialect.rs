//! PostgreSQL's dialect of the parser, without names of arguments that are expressions
//! (`f(lower('a'): 1)`). To find out whether such a name is
//! there, the parser reads each argument twice, so that a call within a call within a call takes
//! twice the time for each level.

use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

/// The dialect of every parse.
#[derive(Debug)]
pub(crate) struct QueryDialect {
    /// `t FOR SYSTEM_TIME AS OF …` is read; then `at` and `before` are no aliases after a relation.
    pub has_versions: bool,
}

const POSTGRES: PostgreSqlDialect = PostgreSqlDialect {};

/// Yes-or-no questions that PostgreSQL's dialect answers.
macro_rules! as_postgres {
    ($($question:ident),* $(,)?) => {
        $(
            fn $question(&self) -> bool {
                POSTGRES.$question()
            }
        )*
    };
}

impl Dialect for QueryDialect {
    /// Some rules of the parser ask for the dialect by its type.
    fn dialect(&self) -> std::any::TypeId {
        POSTGRES.dialect()
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        POSTGRES.identifier_quote_style(identifier)
    }

    fn is_delimited_identifier_start(&self, c: char) -> bool {
        POSTGRES.is_delimited_identifier_start(c)
    }

    fn is_identifier_start(&self, c: char) -> bool {
        POSTGRES.is_identifier_start(c)
    }

    fn is_identifier_part(&self, c: char) -> bool {
        POSTGRES.is_identifier_part(c)
    }

    fn is_reserved_for_identifier(&self, keyword: Keyword) -> bool {
        POSTGRES.is_reserved_for_identifier(keyword)
    }

    fn is_custom_operator_part(&self, c: char) -> bool {
        POSTGRES.is_custom_operator_part(c)
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        POSTGRES.get_next_precedence(parser)
    }

    /// `a IS DISTINCT FROM b AND c`: the parser would take `b AND c` together.
    fn parse_infix(
        &self,
        parser: &mut Parser,
        left: &Expr,
        _: u8,
    ) -> Option<Result<Expr, ParserError>> {
        const DISTINCT: [Keyword; 3] = [Keyword::IS, Keyword::DISTINCT, Keyword::FROM];
        const NOT_DISTINCT: [Keyword; 4] =
            [Keyword::IS, Keyword::NOT, Keyword::DISTINCT, Keyword::FROM];
        let compared: fn(Box<Expr>, Box<Expr>) -> Expr = if parser.parse_keywords(&DISTINCT) {
            Expr::IsDistinctFrom
        } else if parser.parse_keywords(&NOT_DISTINCT) {
            Expr::IsNotDistinctFrom
        } else {
            return None;
        };
        let right = parser.parse_subexpr(self.prec_value(Precedence::Is));
        Some(right.map(|right| compared(Box::new(left.clone()), Box::new(right))))
    }

    fn supports_table_versioning(&self) -> bool {
        self.has_versions
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        POSTGRES.prec_value(precedence)
    }

    as_postgres!(
        supports_unicode_string_literal,
        supports_filter_during_aggregation,
        supports_group_by_expr,
        allow_extract_custom,
        allow_extract_single_quotes,
        supports_create_index_with_clause,
        supports_explain_with_utility_options,
        supports_listen_notify,
        supports_factorial_operator,
        supports_bitwise_shift_operators,
        supports_comment_on,
        supports_load_extension,
        supports_named_fn_args_with_colon_operator,
        supports_empty_projections,
        supports_nested_comments,
        supports_string_escape_constant,
        supports_numeric_literal_underscores,
        supports_array_typedef_with_brackets,
        supports_geometric_types,
        supports_set_names,
        supports_alter_column_type_using,
        supports_notnull_operator,
        supports_interval_options,
        supports_insert_table_alias,
        supports_create_table_like_parenthesized,
        supports_select_wildcard_with_alias,
        supports_comma_separated_trim,
        supports_xml_expressions,
        supports_comment_optimizer_hint,
    );
}
