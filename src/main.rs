//! The `tidemill` binary.
fn main() {}
