//! `'a'`, a line break, `'b'` is the string `'ab'`; on one line two strings are a syntax error
//! (PostgreSQL manual, 4.1.2.1). The parser would take the second one for an alias.
//!
//! Pure: tokens to tokens, a joined string with the place of all of its parts.

use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan, Whitespace};

/// The tokens with such strings as one, and the place of the first string that stands behind
/// another on its line.
pub(super) fn joined(tokens: Vec<TokenWithSpan>) -> (Vec<TokenWithSpan>, Option<Span>) {
    let mut kept: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut refused = None;
    // Where the last token that is no white space is kept, and whether a line ended behind it.
    let mut last: Option<usize> = None;
    let mut line_ended = false;
    for token in tokens {
        if let Token::Whitespace(blank) = &token.token {
            line_ended |= matches!(
                blank,
                Whitespace::Newline | Whitespace::SingleLineComment { .. }
            );
            kept.push(token);
            continue;
        }
        let before = last.and_then(|at| kept.get_mut(at));
        if let (Some(before), Token::SingleQuotedString(more)) = (before, &token.token)
            && let Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) =
                &mut before.token
        {
            if line_ended {
                text.push_str(more);
                before.span.end = token.span.end;
                continue;
            }
            refused = refused.or(Some(token.span));
        }
        last = Some(kept.len());
        line_ended = false;
        kept.push(token);
    }
    (kept, refused)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;
    use crate::sql::source::DIALECT;

    fn read(text: &str) -> (Vec<String>, bool) {
        let tokens = Tokenizer::new(&DIALECT, text)
            .tokenize_with_location()
            .unwrap();
        let (tokens, refused) = joined(tokens);
        let strings = tokens.into_iter().filter_map(|t| match t.token {
            Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => Some(text),
            _ => None,
        });
        (strings.collect(), refused.is_some())
    }

    #[test]
    fn strings_on_lines_of_their_own_are_one() {
        for (text, strings, is_refused) in [
            ("'a'\n'b'", vec!["ab"], false),
            ("'a' -- c\n  'b'\n'c', 'd'", vec!["abc", "d"], false),
            ("E'a\\n'\n'b'", vec!["a\nb"], false),
            ("'a' 'b'", vec!["a", "b"], true),
            ("'a' || 'b'", vec!["a", "b"], false),
            ("'a' AS\n'b'", vec!["a", "b"], false),
        ] {
            assert_eq!(
                read(text),
                (strings.into_iter().map(str::to_owned).collect(), is_refused),
                "{text}"
            );
        }
    }
}
