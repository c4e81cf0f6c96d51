//! Where the first group of a pattern lies in its matches.
//!
//! To find a match is one pass of an automaton; to find what its groups took is another, and a slower
//! one. In `[?&]id=([^&]*)` the group begins four bytes after the match and ends with it, whatever the
//! text: where all around the group is of fixed length, the match alone says where it is. Patterns of
//! any other form are not looked into.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind};

/// Bytes of every match before its first group and behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupPlace {
    before: usize,
    behind: usize,
}

impl GroupPlace {
    /// The place of the first group, if all matches have it at the same one. A dot matches a line
    /// break, as the patterns of this folder are compiled.
    pub(super) fn of(pattern: &str) -> Option<Self> {
        let mut parser = ParserBuilder::new().dot_matches_new_line(true).build();
        let parsed = parser.parse(pattern).ok()?;
        let parts = match parsed.kind() {
            HirKind::Concat(parts) => parts.as_slice(),
            _ => std::slice::from_ref(&parsed),
        };
        let group = parts.iter().position(is_first_group)?;
        Some(Self {
            before: fixed_length(&parts[..group])?,
            behind: fixed_length(&parts[group + 1..])?,
        })
    }

    /// What the group took of a match.
    pub(super) fn within<'a>(&self, found: &'a str) -> &'a str {
        &found[self.before..found.len() - self.behind]
    }
}

fn is_first_group(part: &Hir) -> bool {
    matches!(part.kind(), HirKind::Capture(group) if group.index == 1)
}

/// Bytes that all texts have that the parts match one after the other.
fn fixed_length(parts: &[Hir]) -> Option<usize> {
    let lengths = parts.iter().map(|part| {
        let (least, most) = (
            part.properties().minimum_len(),
            part.properties().maximum_len(),
        );
        least.filter(|_| least == most)
    });
    lengths.sum()
}

#[cfg(test)]
mod tests {
    use regex::RegexBuilder;

    use super::*;

    #[test]
    fn a_group_lies_where_the_automaton_of_groups_finds_it() {
        let texts = [
            "",
            "a",
            "id=",
            "?id=7&x=1",
            "&id=&",
            "x?id=\u{e9}\u{e9}\n&id=3",
            "aab",
            "b(a)b",
            "\u{e9}ab",
        ];
        for (pattern, is_fixed) in [
            ("[?&]id=([^&]*)", true),
            ("([^&]*)", true),
            ("(a|b)b$", true),
            ("^(?:a)(.*)b", true),
            ("id=(.*?)&", true),
            ("a(b(a)?)?", false),
            ("a*(b)", false),
            ("(a)|b", false),
            ("(?:(a)|b)(b)", false),
            ("(a)+b", false),
            ("[a\u{e9}](.)", false),
            ("ab", false),
        ] {
            let place = GroupPlace::of(pattern);
            assert_eq!(place.is_some(), is_fixed, "{pattern}");
            let Some(place) = place else { continue };
            let regex = RegexBuilder::new(pattern)
                .dot_matches_new_line(true)
                .build()
                .unwrap();
            for text in texts {
                let expected = regex.captures(text).map(|groups| groups[1].to_owned());
                let found = regex
                    .find(text)
                    .map(|found| place.within(found.as_str()).to_owned());
                assert_eq!(found, expected, "{pattern} in {text}");
            }
        }
    }
}
