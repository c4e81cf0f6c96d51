//! Locking clauses as PostgreSQL takes them (manual, SELECT) and the parser does not:
//!
//! ```text
//! FOR NO KEY UPDATE, FOR KEY SHARE           →  FOR UPDATE, FOR SHARE
//! … FOR UPDATE OF a, b NOWAIT                →  … FOR UPDATE OF a NOWAIT FOR UPDATE OF b NOWAIT
//! … FOR UPDATE SKIP LOCKED LIMIT 1 OFFSET 2  →  … LIMIT 1 OFFSET 2 FOR UPDATE SKIP LOCKED
//! ```
//! The longer names differ only beside foreign keys (13.3.2), which there are none of.
//!
//! Pure: tokens to tokens, each with its place in the text.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// The tokens with locking clauses as the parser knows them.
pub(super) fn plain(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    // Of a long INSERT each word counts.
    if !tokens.iter().any(|t| keyword(&t.token) == Keyword::FOR) {
        return tokens;
    }
    let mut kept: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut rest = tokens.as_slice();
    // Clauses that wait for the end of the query they stand in, by the depth of that one.
    let mut waiting: Vec<(usize, Vec<TokenWithSpan>)> = Vec::new();
    let mut depth = 0_usize;
    while let Some((first, behind)) = rest.split_first() {
        if let Some(clause) = Clause::at(rest) {
            rest = &rest[clause.length..];
            match starts_bounds(rest) {
                true => waiting.push((depth, clause.tokens)),
                false => kept.extend(clause.tokens),
            }
            continue;
        }
        if ends_query(&first.token) {
            let over = waiting.pop_if(|(of, _)| *of == depth);
            kept.extend(over.into_iter().flat_map(|(_, clause)| clause));
        }
        match first.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        kept.push(first.clone());
        rest = behind;
    }
    kept.extend(waiting.into_iter().flat_map(|(_, clause)| clause));
    kept
}

/// What may stand behind `LIMIT`, `OFFSET` and `FETCH` at their own depth.
fn ends_query(token: &Token) -> bool {
    matches!(token, Token::RParen) || matches!(keyword(token), Keyword::ON | Keyword::RETURNING)
}

fn starts_bounds(tokens: &[TokenWithSpan]) -> bool {
    let bounds = [Keyword::LIMIT, Keyword::OFFSET, Keyword::FETCH];
    let first = tokens.iter().find(|t| is_code(t));
    first.is_some_and(|t| bounds.contains(&keyword(&t.token)))
}

/// One locking clause or more.
struct Clause {
    /// what it takes of the text
    length: usize,
    tokens: Vec<TokenWithSpan>,
}

impl Clause {
    /// The clauses that these tokens begin with, with white space behind each word.
    fn at(tokens: &[TokenWithSpan]) -> Option<Self> {
        const BEGINNINGS: [(&[Keyword], &[usize]); 4] = [
            (&[Keyword::FOR, Keyword::UPDATE], &[]),
            (&[Keyword::FOR, Keyword::SHARE], &[]),
            (
                &[Keyword::FOR, Keyword::NO, Keyword::KEY, Keyword::UPDATE],
                &[1, 2],
            ),
            (&[Keyword::FOR, Keyword::KEY, Keyword::SHARE], &[1]),
        ];
        const ENDS: [&[Keyword]; 2] = [&[Keyword::NOWAIT], &[Keyword::SKIP, Keyword::LOCKED]];
        let mut clause = Self {
            length: 0,
            tokens: Vec::new(),
        };
        while let Some((words, dropped)) = BEGINNINGS
            .iter()
            .find(|(words, _)| begins_with(&tokens[clause.length..], words))
        {
            let mut head = Vec::new();
            for at in 0..words.len() {
                let word = clause.take(tokens);
                if !dropped.contains(&at) {
                    head.extend_from_slice(word);
                }
            }
            let names = clause.take_names(tokens, &mut head);
            let mut tail = Vec::new();
            for end in ENDS {
                if begins_with(&tokens[clause.length..], end) {
                    end.iter()
                        .for_each(|_| tail.extend_from_slice(clause.take(tokens)));
                }
            }
            for name in names {
                for part in [&head, &name, &tail] {
                    clause.tokens.extend_from_slice(part);
                }
            }
        }
        (clause.length > 0).then_some(clause)
    }

    /// Goes over `OF a, b`, of which OF goes to the head; without it there is one name, an empty one.
    fn take_names(
        &mut self,
        tokens: &[TokenWithSpan],
        head: &mut Vec<TokenWithSpan>,
    ) -> Vec<Vec<TokenWithSpan>> {
        if !begins_with(&tokens[self.length..], &[Keyword::OF]) {
            return vec![Vec::new()];
        }
        head.extend_from_slice(self.take(tokens));
        let mut names = vec![self.take(tokens).to_vec()];
        while let Some(next) = tokens.get(self.length) {
            match (&next.token, names.last_mut()) {
                (Token::Period, Some(name)) => {
                    name.extend_from_slice(self.take(tokens));
                    name.extend_from_slice(self.take(tokens));
                }
                (Token::Comma, _) => {
                    self.take(tokens);
                    names.push(self.take(tokens).to_vec());
                }
                _ => break,
            }
        }
        names
    }

    /// Goes over a word and the white space behind it.
    fn take<'a>(&mut self, tokens: &'a [TokenWithSpan]) -> &'a [TokenWithSpan] {
        let rest = &tokens[self.length..];
        let blank = rest.iter().skip(1).take_while(|t| !is_code(t));
        let length = rest.len().min(1 + blank.count());
        self.length += length;
        &rest[..length]
    }
}

fn begins_with(tokens: &[TokenWithSpan], words: &[Keyword]) -> bool {
    let is_first = tokens.first().is_some_and(is_code);
    let code = tokens.iter().filter(|t| is_code(t)).take(words.len());
    is_first && code.map(|t| keyword(&t.token)).eq(words.iter().copied())
}

fn is_code(token: &TokenWithSpan) -> bool {
    !matches!(token.token, Token::Whitespace(_))
}

fn keyword(token: &Token) -> Keyword {
    match token {
        Token::Word(word) => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;
    use crate::sql::source::DIALECT;

    #[test]
    fn clauses_are_as_the_parser_knows_them() {
        for (text, left) in [
            (
                "SELECT 1 FOR NO KEY UPDATE OF t",
                "SELECT 1 FOR UPDATE OF t",
            ),
            ("SELECT 1 for key\nshare", "SELECT 1 for share"),
            ("SELECT key FOR UPDATE", "SELECT key FOR UPDATE"),
            ("SELECT 'FOR KEY SHARE'", "SELECT 'FOR KEY SHARE'"),
            (
                "DELETE FROM t WHERE i IN (SELECT i FROM t FOR UPDATE OF public.t SKIP LOCKED LIMIT (1) OFFSET 2) AND k",
                "DELETE FROM t WHERE i IN (SELECT i FROM t LIMIT (1) OFFSET 2 FOR UPDATE OF public.t SKIP LOCKED ) AND k",
            ),
            (
                "INSERT INTO a SELECT * FROM t FOR UPDATE FOR SHARE OF u LIMIT 1 RETURNING i",
                "INSERT INTO a SELECT * FROM t LIMIT 1 FOR UPDATE FOR SHARE OF u RETURNING i",
            ),
            (
                "SELECT 1 FOR UPDATE NOWAIT LIMIT 1",
                "SELECT 1 LIMIT 1 FOR UPDATE NOWAIT",
            ),
            (
                "SELECT 1 FROM a, b FOR NO KEY UPDATE OF a ,public.b NOWAIT LIMIT 1",
                "SELECT 1 FROM a, b LIMIT 1 FOR UPDATE OF a NOWAIT FOR UPDATE OF public.b NOWAIT",
            ),
            ("SELECT substring(a FOR 3)", "SELECT substring(a FOR 3)"),
        ] {
            let tokens = Tokenizer::new(&DIALECT, text)
                .tokenize_with_location()
                .unwrap();
            let tokens = plain(tokens);
            let words = |token: &TokenWithSpan| is_code(token).then(|| token.token.to_string());
            let kept: Vec<String> = tokens.iter().filter_map(words).collect();
            let left = Tokenizer::new(&DIALECT, left)
                .tokenize_with_location()
                .unwrap();
            let left: Vec<String> = left.iter().filter_map(words).collect();
            assert_eq!(kept, left, "{text}");
        }
    }
}
