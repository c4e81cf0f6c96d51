//! `EXCLUDE CURRENT ROW | GROUP | TIES | NO OTHERS` at the end of a window frame, which the parser
//! does not know. Its words become a mark among the columns of PARTITION BY, where it goes with
//! the window, named or not, until the function over it is planned ([`crate::sql::planner`]):
//!
//! ```text
//! (PARTITION BY k ORDER BY t ROWS 3 PRECEDING EXCLUDE TIES)
//!   →  (PARTITION BY ('\u{1}exclude ties'), k ORDER BY t ROWS 3 PRECEDING)
//! ```
//! Pure: tokens to tokens, each with the place of the words that it stands for.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::planner::{PlannerResult, RawWindowExpr};
use datafusion::logical_expr::utils::COUNT_STAR_EXPANSION;
use datafusion::logical_expr::{Expr, WindowFunctionDefinition};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan, Word};

use crate::sql::functions::excluding::{Over, excluding};

/// What a mark begins with.
const MARK: &str = "\u{1}exclude ";

/// Rows of a frame that a function does not see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Exclusion {
    /// `EXCLUDE NO OTHERS`
    None,
    /// `EXCLUDE CURRENT ROW`
    CurrentRow,
    /// `EXCLUDE GROUP`: the current row and those that tie with it.
    Group,
    /// `EXCLUDE TIES`: those that tie with the current row.
    Ties,
}

impl Exclusion {
    const ALL: [Self; 4] = [Self::None, Self::CurrentRow, Self::Group, Self::Ties];

    /// What follows `EXCLUDE`, in lower case.
    pub fn words(self) -> &'static str {
        match self {
            Self::None => "no others",
            Self::CurrentRow => "current row",
            Self::Group => "group",
            Self::Ties => "ties",
        }
    }

    /// Of the text of a mark.
    pub fn of_mark(text: &str) -> Option<Self> {
        let words = text.strip_prefix(MARK)?;
        Self::ALL.into_iter().find(|e| e.words() == words)
    }
}

fn is_code(token: &TokenWithSpan) -> bool {
    !matches!(token.token, Token::Whitespace(_))
}

fn keyword(token: &TokenWithSpan) -> Option<Keyword> {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.keyword),
        _ => None,
    }
}

fn says(token: &TokenWithSpan, text: &str) -> bool {
    matches!(&token.token, Token::Word(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text))
}

/// The tokens with each exclusion as a mark.
pub(super) fn as_marks(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut from = 0;
    while let Some(found) = tokens[from..].iter().position(|t| says(t, "exclude")) {
        let at = from + found;
        from = at + 1;
        if let Some((end, exclusion)) = exclusion_at(&tokens, at)
            && let Some((place, has_partition)) = window_before(&tokens, at)
        {
            let span = tokens[at].span;
            tokens.drain(at..end);
            tokens.splice(place..place, mark(exclusion, has_partition, span));
        }
    }
    tokens
}

/// The exclusion whose words begin at a token, and where they end: before a closing bracket.
fn exclusion_at(tokens: &[TokenWithSpan], at: usize) -> Option<(usize, Exclusion)> {
    let code: Vec<usize> = (at + 1..tokens.len())
        .filter(|i| is_code(&tokens[*i]))
        .take(3)
        .collect();
    Exclusion::ALL.into_iter().find_map(|exclusion| {
        let words = exclusion.words().split(' ');
        let count = words.clone().count();
        let matches = words
            .zip(&code)
            .filter(|(word, i)| says(&tokens[**i], word))
            .count();
        let end = *code.get(count)?;
        (matches == count && tokens[end].token == Token::RParen).then_some((end, exclusion))
    })
}

/// Where a mark goes in the window that is open before a token, and whether behind PARTITION BY.
fn window_before(tokens: &[TokenWithSpan], at: usize) -> Option<(usize, bool)> {
    let mut depth = 0usize;
    let mut place = None;
    for index in (0..at).rev() {
        match (&tokens[index].token, keyword(&tokens[index])) {
            (Token::RParen, _) => depth += 1,
            (Token::LParen, _) if depth > 0 => depth -= 1,
            (Token::LParen, _) => break,
            _ if depth > 0 => {}
            (_, Some(Keyword::PARTITION)) => {
                let by = (index + 1..at).find(|i| is_code(&tokens[*i]))?;
                return Some((by + 1, true));
            }
            (_, Some(Keyword::ORDER | Keyword::ROWS | Keyword::RANGE | Keyword::GROUPS)) => {
                place = Some(index);
            }
            _ => {}
        }
    }
    place.map(|place| (place, false))
}

fn mark(exclusion: Exclusion, has_partition: bool, span: Span) -> Vec<TokenWithSpan> {
    let word = |value: &str, keyword| {
        Token::Word(Word {
            value: value.to_owned(),
            quote_style: None,
            keyword,
        })
    };
    let text = Token::SingleQuotedString(format!("{MARK}{}", exclusion.words()));
    // In brackets, since the engine passes over what is plainly a constant.
    let bracketed = [Token::LParen, text, Token::RParen];
    let (before, after) = match has_partition {
        true => (vec![], vec![Token::Comma]),
        false => {
            let by = word("BY", Keyword::BY);
            (vec![word("PARTITION", Keyword::PARTITION), by], vec![])
        }
    };
    before
        .into_iter()
        .chain(bracketed)
        .chain(after)
        .map(|token| TokenWithSpan::new(token, span))
        .collect()
}

/// A function over a window: with a mark, one that sees what the exclusion leaves of its frame.
pub(super) fn planned(mut window: RawWindowExpr) -> PlannerResult<RawWindowExpr> {
    let mark = |e: &Expr| match e {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => Exclusion::of_mark(text),
        _ => None,
    };
    let Some(exclusion) = window.partition_by.iter().find_map(mark) else {
        return PlannerResult::Original(window);
    };
    window.partition_by.retain(|e| mark(e).is_none());
    let over = match &window.func_def {
        WindowFunctionDefinition::AggregateUDF(function) => Over::Aggregate {
            function: Arc::clone(function),
            is_filtered: window.filter.is_some(),
        },
        WindowFunctionDefinition::WindowUDF(function) => match function.name() {
            "first_value" => Over::First,
            "last_value" => Over::Last,
            "nth_value" => Over::Nth,
            // It looks at the partition, whatever the frame.
            _ => return PlannerResult::Original(window),
        },
    };
    let mut args: Vec<Expr> = window.args.into_iter().map(counted).collect();
    args.extend(window.filter.map(|filter| *filter));
    PlannerResult::Planned(Expr::WindowFunction(Box::new(WindowFunction {
        fun: WindowFunctionDefinition::WindowUDF(excluding(over, exclusion)),
        params: WindowFunctionParams {
            args,
            partition_by: window.partition_by,
            order_by: window.order_by,
            window_frame: window.window_frame,
            filter: None,
            null_treatment: window.null_treatment,
            distinct: window.distinct,
        },
    })))
}

/// The `*` of `count(*)` as what the engine counts.
fn counted(argument: Expr) -> Expr {
    #[expect(deprecated, reason = "the engine's parser still makes it")]
    let is_star = matches!(argument, Expr::Wildcard { .. });
    match is_star {
        true => Expr::Literal(COUNT_STAR_EXPANSION, None),
        false => argument,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;
    use crate::sql::source::DIALECT;

    fn marked(sql: &str) -> String {
        let tokens = Tokenizer::new(&DIALECT, sql).tokenize_with_location();
        let marked = as_marks(tokens.unwrap());
        let words = marked.iter().filter(|t| is_code(t));
        let words: Vec<String> = words.map(|t| t.token.to_string()).collect();
        words.join(" ").replace('\u{1}', "")
    }

    #[test]
    fn exclusions_become_marks() {
        assert_eq!(
            marked("(PARTITION BY f(a, b) ORDER BY t ROWS 1 PRECEDING EXCLUDE ties)"),
            "( PARTITION BY ( 'exclude ties' ) , f ( a , b ) ORDER BY t ROWS 1 PRECEDING )"
        );
        assert_eq!(
            marked("(w ORDER BY (t) GROUPS 1 PRECEDING exclude Current Row)"),
            "( w PARTITION BY ( 'exclude current row' ) ORDER BY ( t ) GROUPS 1 PRECEDING )"
        );
        for unchanged in ["SELECT exclude FROM t", "( exclude no )", "exclude group )"] {
            assert_eq!(marked(unchanged), unchanged);
        }
    }
}
