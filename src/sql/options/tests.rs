//! Names, values and hints of options.
use super::*;

fn text(value: &str) -> OptionValue {
    OptionValue::Text(value.into())
}

fn one(target: Targets, name: &str, value: &str) -> Result<Options> {
    validate(target, [(name.to_owned(), text(value))])
}

#[test]
fn spark_spellings_mean_our_names() {
    for (target, given, value, name, canonical) in [
        (
            Targets::KAFKA,
            "maxOffsetsPerTrigger",
            "100_000",
            "max_offsets_per_trigger",
            "100000",
        ),
        (
            Targets::KAFKA,
            "startingOffsets",
            "latest",
            "starting_offsets",
            "latest",
        ),
        (
            Targets::KAFKA,
            "failOnDataLoss",
            "FALSE",
            "fail_on_data_loss",
            "false",
        ),
        (Targets::KAFKA, "subscribe", "a,b", "topic", "a,b"),
        (
            Targets::KAFKA,
            "kafka.bootstrap.servers",
            "h:1",
            "brokers",
            "h:1",
        ),
        (Targets::FILES, "path", "/in", "location", "/in"),
        (
            Targets::FILES,
            "cloudfiles.maxfilespertrigger",
            "5",
            "max_files_per_trigger",
            "5",
        ),
        (
            Targets::FILES,
            "on_bad_row",
            "dead_letter",
            "on_bad_row",
            "dead letter",
        ),
        (
            Targets::VIEW,
            "processingTime",
            "10 seconds",
            "trigger",
            "10 seconds",
        ),
        (
            Targets::VIEW,
            "availableNow",
            "true",
            "trigger",
            "available now",
        ),
        (
            Targets::VIEW,
            "trigger",
            "AVAILABLE_NOW",
            "trigger",
            "available now",
        ),
    ] {
        let options = one(target, given, value).unwrap();
        assert_eq!(options.get(name), Some(&text(canonical)), "{given}");
        assert_eq!(options.len(), 1);
    }
}

#[test]
fn kafka_settings_pass_through_only_to_kafka() {
    let name = "kafka.max.partition.fetch.bytes";
    assert!(one(Targets::KAFKA, name, "1").unwrap().contains_key(name));
    assert_eq!(
        one(Targets::FILES, name, "1").unwrap_err().sqlstate(),
        "42704"
    );
}

#[test]
fn unknown_options_name_the_nearest() {
    let e = one(Targets::FILES, "max_file_per_triger", "1").unwrap_err();
    assert_eq!(e.sqlstate(), "42704");
    assert!(e.hint_text().unwrap().contains("max_files_per_trigger"));
    // Known, but not by this connector.
    let e = one(Targets::SOCKET, "location", "/x").unwrap_err();
    assert!(
        e.primary().contains("socket has no option \"location\""),
        "{e}"
    );
    assert_eq!(
        Targets::stream(Some("kafak")).unwrap_err().sqlstate(),
        "42704"
    );
}

#[test]
fn wrong_values() {
    for (target, name, value) in [
        (Targets::FILES, "max_files_per_trigger", "0"),
        (Targets::FILES, "max_files_per_trigger", "many"),
        (Targets::FILES, "header", "perhaps"),
        (Targets::FILES, "max_bytes_per_trigger", "10x"),
        (Targets::FILES, "format", "xml"),
        (Targets::VIEW, "trigger", "1 month"),
        (Targets::VIEW, "idle_timeout", "-1 s"),
    ] {
        let e = one(target, name, value).unwrap_err();
        assert_eq!(e.sqlstate(), "22023", "{name}");
        assert!(e.primary().contains(name) && e.primary().contains(value));
    }
    let twice = validate(
        Targets::FILES,
        [("path".into(), text("a")), ("location".into(), text("b"))],
    );
    assert_eq!(twice.unwrap_err().sqlstate(), "42601");
}

#[test]
fn getters() {
    let options: Options = [
        ("max_bytes_per_trigger".to_owned(), text("10g")),
        ("header".to_owned(), text("on")),
        ("seed".to_owned(), text("x")),
        ("idle_timeout".to_owned(), text("100 milliseconds")),
        ("trigger".to_owned(), text("continuous")),
        ("password".to_owned(), OptionValue::Secret("p".into())),
    ]
    .into();
    assert_eq!(
        bytes(&options, "max_bytes_per_trigger").unwrap(),
        Some(10 << 30)
    );
    assert_eq!(boolean(&options, "header").unwrap(), Some(true));
    assert_eq!(
        duration(&options, "idle_timeout").unwrap(),
        Some(Duration::from_millis(100))
    );
    assert_eq!(integer(&options, "rows").unwrap(), None);
    let e = integer(&options, "seed").unwrap_err();
    assert!(e.primary().contains("\"seed\": \"x\""));
    assert_eq!(trigger_of(&options).unwrap(), Some(Trigger::Continuous));
    assert!(super::text(&options, "password").is_err());
}

#[test]
fn byte_sizes() {
    for (given, expected) in [
        ("1024", Some(1024)),
        ("64 MB", Some(64 << 20)),
        ("1.5k", Some(1536)),
        ("1GiB", Some(1 << 30)),
        ("-1", None),
        ("99999999999999999999t", Some(u64::MAX)),
        ("k", None),
    ] {
        assert_eq!(parse_bytes(given), expected, "{given}");
    }
}

#[test]
fn shown_options() {
    let rows = rows_for("kafka").unwrap();
    assert!(
        rows.iter()
            .any(|r| r.name == "topic" && r.also_accepted == "subscribe")
    );
    assert!(!rows.iter().any(|r| r.name == "location"));
    assert!(
        rows_for("pipeline")
            .unwrap()
            .iter()
            .any(|r| r.name == "trigger")
    );
    assert_eq!(rows_for("kafkaa").unwrap_err().sqlstate(), "42704");
    assert!(
        OPTIONS
            .iter()
            .all(|o| o.default.is_none_or(|d| canonical(o, d).is_ok()))
    );
}
