//! Names and values of a list of options `{name=value,…}` as PostgreSQL's catalog holds them: the
//! columns of `pg_options_to_table`.

use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ScalarUDF;

use super::plain::{Type, form, plain, texts};
use crate::error::{Error, Result};

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        plain(
            "option_names_array",
            &[form!([TextArray] -> TextArray, |a| {
                let names = options(&a[0])?.into_iter().map(|(name, _)| Some(name));
                Ok(texts(Type::TextArray, names))
            })],
        ),
        plain(
            "option_values_array",
            &[form!([TextArray] -> TextArray, |a| {
                let values = options(&a[0])?.into_iter().map(|(_, value)| value);
                Ok(texts(Type::TextArray, values))
            })],
        ),
    ]
}

fn options(list: &ScalarValue) -> Result<Vec<(String, Option<String>)>> {
    let ScalarValue::List(list) = list else {
        return Err(Error::internal("a form's argument is an array"));
    };
    let items = list.value(0);
    let items = items.as_string::<i32>().iter().flatten();
    Ok(items
        .map(|option| match option.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (option.to_owned(), None),
        })
        .collect())
}
