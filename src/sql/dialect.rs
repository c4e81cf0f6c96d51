//! PostgreSQL's dialect of the parser, without names of arguments that are expressions
//! (`f(lower('a'): 1)`). To find out whether such a name is
//! there, the parser reads each argument twice, so that a call within a call within a call takes
//! twice the time for each level.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, TrimWhereField};
use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

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

/// Two brackets, of which the second one is closed before the name of a set operation.
fn begins_set_operation(parser: &Parser) -> bool {
    let bracket = |at: usize| match parser.peek_nth_token_ref(at).token {
        Token::LParen => 1,
        Token::RParen => -1,
        Token::EOF => i32::MIN,
        _ => 0,
    };
    if bracket(0) != 1 || bracket(1) != 1 {
        return false;
    }
    let (mut at, mut open) = (1, 1);
    while open > 0 {
        at += 1;
        match bracket(at) {
            i32::MIN => return false,
            change => open += change,
        }
    }
    let next = &parser.peek_nth_token_ref(at + 1).token;
    let operations = [Keyword::UNION, Keyword::INTERSECT, Keyword::EXCEPT];
    matches!(next, Token::Word(word) if operations.contains(&word.keyword))
}

/// `x > ANY ((SELECT …) UNION …)`: the parser takes a query in brackets for an expression.
fn with_any_of_query(parser: &mut Parser, left: &Expr) -> Option<Result<Expr, ParserError>> {
    let token = |at: usize| &parser.peek_nth_token_ref(at).token;
    let compare_op = match token(0) {
        Token::Eq => BinaryOperator::Eq,
        Token::Neq => BinaryOperator::NotEq,
        Token::Lt => BinaryOperator::Lt,
        Token::LtEq => BinaryOperator::LtEq,
        Token::Gt => BinaryOperator::Gt,
        Token::GtEq => BinaryOperator::GtEq,
        _ => return None,
    };
    let quantifier = match token(1) {
        Token::Word(word) => word.keyword,
        _ => return None,
    };
    let is_quantifier = [Keyword::ANY, Keyword::SOME, Keyword::ALL].contains(&quantifier);
    if !is_quantifier || *token(2) != Token::LParen || *token(3) != Token::LParen {
        return None;
    }
    let first = (4..).find(|at| *token(*at) != Token::LParen)?;
    let begins_query = matches!(token(first), Token::Word(word)
        if [Keyword::SELECT, Keyword::WITH, Keyword::VALUES].contains(&word.keyword));
    begins_query.then(|| {
        for _ in 0..3 {
            parser.next_token();
        }
        let right = Box::new(Expr::Subquery(parser.parse_query()?));
        parser.expect_token(&Token::RParen)?;
        let left = Box::new(left.clone());
        Ok(match quantifier {
            Keyword::ALL => Expr::AllOp {
                left,
                compare_op,
                right,
            },
            _ => Expr::AnyOp {
                left,
                compare_op,
                right,
                is_some: quantifier == Keyword::SOME,
            },
        })
    })
}

/// `x [NOT] BETWEEN SYMMETRIC a AND b`: the parser does not know SYMMETRIC.
fn with_symmetric_bounds(parser: &mut Parser, left: &Expr) -> Option<Result<Expr, ParserError>> {
    let token = |at: usize| &parser.peek_nth_token_ref(at).token;
    let is_word = |at: usize, text: &str| match token(at) {
        Token::Word(word) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text),
        _ => false,
    };
    let negated = is_word(0, "NOT");
    let between = usize::from(negated);
    if !is_word(between, "BETWEEN") || !is_word(between + 1, "SYMMETRIC") {
        return None;
    }
    for _ in 0..between + 2 {
        parser.next_token();
    }
    let precedence = POSTGRES.prec_value(Precedence::Between);
    Some(parser.parse_subexpr(precedence).and_then(|low| {
        parser.expect_keyword(Keyword::AND)?;
        let high = parser.parse_subexpr(precedence)?;
        let between = |low: &Expr, high: &Expr| Expr::Between {
            expr: Box::new(left.clone()),
            negated,
            low: Box::new(low.clone()),
            high: Box::new(high.clone()),
        };
        let op = match negated {
            true => BinaryOperator::And,
            false => BinaryOperator::Or,
        };
        Ok(Expr::Nested(Box::new(Expr::BinaryOp {
            left: Box::new(between(&low, &high)),
            op,
            right: Box::new(between(&high, &low)),
        })))
    }))
}

/// `trim(trailing FROM x)`, which cuts blanks off: the parser wants to be told what is cut off.
fn trimmed_of_blanks(parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
    let word = |at: usize| match &parser.peek_nth_token_ref(at).token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.keyword),
        _ => None,
    };
    if word(0) != Some(Keyword::TRIM) || parser.peek_nth_token_ref(1).token != Token::LParen {
        return None;
    }
    let trim_where = match word(2) {
        Some(Keyword::BOTH) => Some(TrimWhereField::Both),
        Some(Keyword::LEADING) => Some(TrimWhereField::Leading),
        Some(Keyword::TRAILING) => Some(TrimWhereField::Trailing),
        _ => None,
    };
    let from = 2 + usize::from(trim_where.is_some());
    if word(from) != Some(Keyword::FROM) {
        return None;
    }
    for _ in 0..=from {
        parser.next_token();
    }
    Some(parser.parse_expr().and_then(|expr| {
        parser.expect_token(&Token::RParen)?;
        Ok(Expr::Trim {
            trim_where,
            trim_what: None,
            expr: Box::new(expr),
            trim_characters: None,
        })
    }))
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

    /// `((SELECT …) UNION SELECT …)` as an expression, of which the parser would take the first
    /// query alone; and `trim(FROM x)`.
    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        let trimmed = trimmed_of_blanks(parser);
        if trimmed.is_some() {
            return trimmed;
        }
        begins_set_operation(parser).then(|| {
            parser.expect_token(&Token::LParen)?;
            let query = parser.parse_query()?;
            parser.expect_token(&Token::RParen)?;
            Ok(Expr::Subquery(query))
        })
    }

    /// `a IS DISTINCT FROM b AND c`: the parser would take `b AND c` together.
    fn parse_infix(
        &self,
        parser: &mut Parser,
        left: &Expr,
        _: u8,
    ) -> Option<Result<Expr, ParserError>> {
        let compared = with_any_of_query(parser, left);
        let compared = compared.or_else(|| with_symmetric_bounds(parser, left));
        if compared.is_some() {
            return compared;
        }
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

    /// `f(a := 1)`
    fn supports_named_fn_args_with_assignment_operator(&self) -> bool {
        true
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
