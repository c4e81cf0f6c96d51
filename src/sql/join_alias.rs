//! `JOIN … USING (a, b) AS u`, whose name the parser does not know: it becomes a mark among the
//! columns, for whoever merges them (`rewrite/using.rs`).
//!
//! ```text
//! USING (a, b) AS u   →   USING (a, b, "\u{1}as"."u")
//! ```
//! Pure: tokens to tokens, each with the place of the words that it stands for.

use datafusion::sql::sqlparser::ast::{Ident, ObjectName};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};

/// What stands before the name.
const MARK: &str = "\u{1}as";

/// The tokens with each such name as a mark.
pub(super) fn as_marks(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut from = 0;
    while let Some(found) = tokens[from..].iter().position(|t| says(t, Keyword::USING)) {
        let at = from + found;
        from = at + 1;
        let Some((close, last)) = alias_after(&tokens, at) else {
            continue;
        };
        let span = tokens[last].span;
        let mark = Token::Word(Word {
            value: MARK.to_owned(),
            quote_style: Some('"'),
            keyword: Keyword::NoKeyword,
        });
        let name = tokens[last].token.clone();
        let marked = [Token::Comma, mark, Token::Period, name, Token::RParen];
        let marked = marked.map(|token| TokenWithSpan::new(token, span));
        tokens.splice(close..=last, marked);
    }
    tokens
}

fn says(token: &TokenWithSpan, keyword: Keyword) -> bool {
    matches!(&token.token, Token::Word(word)
        if word.quote_style.is_none() && word.keyword == keyword)
}

/// Where the list of names behind USING is closed, and where the name of the columns stands.
fn alias_after(tokens: &[TokenWithSpan], using: usize) -> Option<(usize, usize)> {
    let is_code = |place: &usize| !matches!(tokens[*place].token, Token::Whitespace(_));
    let mut code = (using + 1..tokens.len()).filter(is_code);
    if tokens[code.next()?].token != Token::LParen {
        return None;
    }
    let close = loop {
        if !matches!(tokens[code.next()?].token, Token::Word(_)) {
            return None;
        }
        let next = code.next()?;
        match tokens[next].token {
            Token::Comma => {}
            Token::RParen => break next,
            _ => return None,
        }
    };
    let (word, name) = (code.next()?, code.next()?);
    let is_alias = says(&tokens[word], Keyword::AS) && matches!(tokens[name].token, Token::Word(_));
    is_alias.then_some((close, name))
}

/// The name that a member of USING stands for, if it is a mark.
pub(super) fn of_mark(name: &ObjectName) -> Option<&Ident> {
    match name.0.as_slice() {
        [mark, alias] if mark.as_ident().is_some_and(|i| i.value == MARK) => alias.as_ident(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;
    use crate::sql::source::DIALECT;

    #[test]
    fn names_become_marks() {
        let marked = |sql: &str| {
            let tokens = Tokenizer::new(&DIALECT, sql).tokenize_with_location();
            let marked = as_marks(tokens.unwrap());
            let texts: Vec<String> = marked.iter().map(|t| t.token.to_string()).collect();
            texts.concat().replace('\u{1}', "")
        };
        assert_eq!(
            marked("x JOIN y USING (a, \"B c\") AS u JOIN z using(d)as\"V\" WHERE"),
            "x JOIN y USING (a, \"B c\",\"as\".u) JOIN z using(d,\"as\".\"V\") WHERE"
        );
        for unchanged in [
            "x JOIN y USING (a) AS",
            "DELETE FROM t USING (SELECT 1) AS u",
            "USING btree (a)",
        ] {
            assert_eq!(marked(unchanged), unchanged);
        }
    }
}
