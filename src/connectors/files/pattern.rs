//! Patterns of paths: `*` and `?` within a part, `**` over parts, `[a-z]` and `{a,b}`.

/// A pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    /// Alternatives with the braces multiplied out.
    alternatives: Vec<Vec<char>>,
}

impl Pattern {
    /// From its text.
    pub fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            alternatives: expand(text)
                .into_iter()
                .map(|a| a.chars().collect())
                .collect(),
        }
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The whole path fits the pattern.
    pub fn matches(&self, path: &str) -> bool {
        let path: Vec<char> = path.chars().collect();
        self.alternatives.iter().any(|p| matches(p, &path))
    }
}

/// Multiplies out the first `{a,b}` and then the rest.
fn expand(text: &str) -> Vec<String> {
    let braces = text
        .find('{')
        .and_then(|open| Some((open, open + text[open..].find('}')?)));
    match braces {
        None => vec![text.to_owned()],
        Some((open, close)) => text[open + 1..close]
            .split(',')
            .flat_map(|choice| expand(&format!("{}{choice}{}", &text[..open], &text[close + 1..])))
            .collect(),
    }
}

fn matches(pattern: &[char], path: &[char]) -> bool {
    match pattern.first() {
        None => path.is_empty(),
        Some('*') if pattern.get(1) == Some(&'*') => {
            // `**/` also stands for no folder at all.
            let rest = &pattern[2..];
            let rest_after_slash = rest.strip_prefix(&['/']).unwrap_or(rest);
            matches(rest_after_slash, path) || (0..=path.len()).any(|i| matches(rest, &path[i..]))
        }
        Some('*') => {
            let part = path.iter().take_while(|c| **c != '/').count();
            (0..=part).any(|i| matches(&pattern[1..], &path[i..]))
        }
        Some('?') => path.first().is_some_and(|c| *c != '/') && matches(&pattern[1..], &path[1..]),
        Some('[') => match (class(pattern), path.first()) {
            (Some((set, negated, length)), Some(c)) => {
                let inside = set.iter().any(|(low, high)| (low..=high).contains(&c));
                inside != negated && *c != '/' && matches(&pattern[length..], &path[1..])
            }
            _ => false,
        },
        Some(literal) => path.first() == Some(literal) && matches(&pattern[1..], &path[1..]),
    }
}

/// Ranges of a `[…]` class, whether it is negated, and its length in the pattern.
#[allow(clippy::type_complexity)]
fn class(pattern: &[char]) -> Option<(Vec<(char, char)>, bool, usize)> {
    let close = pattern.iter().position(|c| *c == ']')?;
    let inner = &pattern[1..close];
    let negated = matches!(inner.first(), Some('!' | '^'));
    let inner = &inner[usize::from(negated)..];
    let mut set = Vec::new();
    let mut at = 0;
    while at < inner.len() {
        if inner.get(at + 1) == Some(&'-') && at + 2 < inner.len() {
            set.push((inner[at], inner[at + 2]));
            at += 3;
        } else {
            set.push((inner[at], inner[at]));
            at += 1;
        }
    }
    Some((set, negated, close + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let fits = |pattern: &str, path: &str| Pattern::new(pattern).matches(path);
        assert!(fits("in/*.json", "in/a.json"));
        assert!(!fits("in/*.json", "in/x/a.json"));
        assert!(fits("in/**/*.json", "in/x/y/a.json"));
        assert!(fits("in/**/*.json", "in/a.json"));
        assert!(!fits("in/**/*.json", "out/a.json"));
        assert!(fits("in/?.csv", "in/a.csv") && !fits("in/?.csv", "in/ab.csv"));
        assert!(fits("d/2024-0[1-3]/*", "d/2024-02/f") && !fits("d/2024-0[1-3]/*", "d/2024-04/f"));
        assert!(fits("d/[!a]*", "d/b1") && !fits("d/[!a]*", "d/a1"));
        assert!(fits("d/*.{json,csv}", "d/x.csv") && !fits("d/*.{json,csv}", "d/x.txt"));
        assert!(!fits("d/*.json", "d/x.json.tmp"));
    }
}
