//! Statements in the words of a hint.
//!
//! A hint is a sentence that holds a statement; a column of statements holds nothing else. What stands in
//! such a column can be run as it is, so a statement with a place to fill in (`…`) is none.

/// Words with which a statement begins that mends something.
const VERBS: [&str; 13] = [
    "ALTER", "BACKUP", "CANCEL", "CHECK", "CREATE", "DIAGNOSE", "DROP", "REBUILD", "REFRESH",
    "REPAIR", "RESET", "RESTORE", "START",
];

/// The first statement of a hint, with a semicolon at its end.
pub fn statement_in(hint: &str) -> Option<String> {
    let mut starts = hint.char_indices().filter_map(|(index, letter)| {
        let before = hint[..index].chars().next_back();
        let begins_word =
            letter.is_ascii_uppercase() && before.is_none_or(|c| !c.is_alphanumeric());
        let word: String = hint[index..]
            .chars()
            .take_while(char::is_ascii_alphabetic)
            .collect();
        (begins_word && VERBS.contains(&word.as_str())).then_some(index)
    });
    starts.find_map(|start| whole_statement(&hint[start..]))
}

/// The longest beginning of a text that is one statement.
fn whole_statement(text: &str) -> Option<String> {
    let end_of_first = text.find(';').unwrap_or(text.len());
    let text = &text[..end_of_first];
    let mut ends: Vec<usize> = text
        .char_indices()
        .filter(|(_, letter)| matches!(letter, ' ' | ',' | '.' | ':'))
        .map(|(index, _)| index)
        .collect();
    ends.push(text.len());
    ends.into_iter().rev().find_map(|end| {
        let statement = text[..end].trim_end_matches([' ', ',', '.', ':']);
        let is_whole = !statement.contains('…') && is_one_statement(statement);
        is_whole.then(|| format!("{statement};"))
    })
}

fn is_one_statement(text: &str) -> bool {
    super::parse(text).is_ok_and(|statements| statements.len() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_whole_statement_is_found_in_the_words() {
        let cases = [
            (
                "Put it back, or RESET CHECKPOINT OF sums;",
                Some("RESET CHECKPOINT OF sums;"),
            ),
            (
                "Run RESTORE CHECKPOINT OF p FROM '…' with a backup, or RESET CHECKPOINT OF p to start again.",
                Some("RESET CHECKPOINT OF p;"),
            ),
            (
                "To go on without these records: ALTER STREAM s SET (fail_on_data_loss = false); to start \
                 over: RESET CHECKPOINT OF p FROM EARLIEST;",
                Some("ALTER STREAM s SET (fail_on_data_loss = false);"),
            ),
            (
                "Run RESTORE CHECKPOINT OF p FROM '/a/b' AT BATCH 7 to accept it.",
                Some("RESTORE CHECKPOINT OF p FROM '/a/b' AT BATCH 7;"),
            ),
            (
                "Create the topic, or correct option topic of the stream.",
                None,
            ),
            (
                "START PIPELINE \"My view\";",
                Some("START PIPELINE \"My view\";"),
            ),
            ("Run the transaction again.", None),
            ("", None),
        ];
        for (hint, statement) in cases {
            assert_eq!(statement_in(hint).as_deref(), statement, "{hint}");
        }
    }
}
