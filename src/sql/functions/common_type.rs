//! `coalesce`, `greatest`, `least`, `nullif` and `ARRAY[…]`: what is a text beside other types is of
//! their type. Whether it may be, a constant and no column, is asked by [`crate::sql::text_constants`].

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::{types_of, udf};

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    use datafusion::functions::core;
    let mut functions = [
        core::coalesce(),
        core::greatest(),
        core::least(),
        core::nullif(),
    ]
    .map(common_type)
    .to_vec();
    functions.push(make_array());
    functions
}

/// `ARRAY[…]`
pub(crate) fn make_array() -> Arc<ScalarUDF> {
    common_type(datafusion::functions_nested::make_array::make_array_udf())
}

fn common_type(engine: Arc<ScalarUDF>) -> Arc<ScalarUDF> {
    udf(CommonType {
        engine,
        signature: Signature::user_defined(Volatility::Immutable),
    })
}

/// NULL is a uuid, and a text stays one.
fn of_uuids(types: &[DataType]) -> Vec<DataType> {
    let uuid = types
        .iter()
        .find(|t| matches!(t, DataType::FixedSizeBinary(_)));
    types
        .iter()
        .map(|t| match (t, uuid) {
            (DataType::Null, Some(uuid)) => uuid.clone(),
            _ => t.clone(),
        })
        .collect()
}

#[derive(Debug)]
struct CommonType {
    engine: Arc<ScalarUDF>,
    signature: Signature,
}

impl PartialEq for CommonType {
    fn eq(&self, other: &Self) -> bool {
        self.engine == other.engine
    }
}

impl Eq for CommonType {}

impl Hash for CommonType {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.engine.hash(state);
    }
}

impl ScalarUDFImpl for CommonType {
    fn name(&self) -> &str {
        self.engine.name()
    }

    fn aliases(&self) -> &[String] {
        self.engine.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        let is_open = |t: &DataType| matches!(t, DataType::Utf8 | DataType::Null);
        let mut others = types.iter().filter(|t| !is_open(t));
        let settled = match others.next() {
            None => types.to_vec(),
            // No text is cast to a uuid; the constant is read as one later.
            Some(DataType::FixedSizeBinary(_)) => return Ok(of_uuids(types)),
            Some(first) if others.all(|other| other == first) => {
                return Ok(vec![first.clone(); types.len()]);
            }
            Some(first) => {
                let settle = |t: &DataType| if is_open(t) { first } else { t }.clone();
                types.iter().map(settle).collect()
            }
        };
        let fields: Vec<FieldRef> = settled
            .into_iter()
            .map(|t| Arc::new(Field::new("", t, true)))
            .collect();
        Ok(types_of(&fields_with_udf(&fields, self.engine.as_ref())?))
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        self.engine.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        self.engine.return_field_from_args(args)
    }

    fn simplify(
        &self,
        args: Vec<Expr>,
        info: &SimplifyContext,
    ) -> DataFusionResult<ExprSimplifyResult> {
        self.engine.simplify(args, info)
    }

    fn short_circuits(&self) -> bool {
        self.engine.short_circuits()
    }

    fn conditional_arguments<'a>(
        &self,
        args: &'a [Expr],
    ) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.engine.conditional_arguments(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        self.engine.invoke_with_args(args)
    }
}
