//! Names of pipelines as names of folders: no two names give one folder, and none leaves its parent.

/// A name as a folder's name: letters, digits, `_` and `-` stay, every other byte is `%XX`.
pub(crate) fn file_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::file_name;

    #[test]
    fn names_become_folder_names_without_collisions() {
        assert_eq!(file_name("clicks_1-a"), "clicks_1-a");
        assert_eq!(file_name("../x y"), "%2E%2E%2Fx%20y");
        assert_ne!(file_name("a/b"), file_name("a%2Fb"));
    }
}
