//! A function of ours beside the engine's of the same name: the types of the arguments decide.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::{types_of, udf};

/// Whether arguments of some types are ours.
type Ours = fn(&[DataType]) -> bool;

/// `own` where `ours` says so, and the engine's function for all else.
pub(super) fn beside(engine: Arc<ScalarUDF>, own: &Arc<ScalarUDF>, ours: Ours) -> Arc<ScalarUDF> {
    udf(Beside {
        engine,
        own: Arc::clone(own),
        ours,
        signature: Signature::user_defined(Volatility::Immutable),
    })
}

#[derive(Debug)]
struct Beside {
    engine: Arc<ScalarUDF>,
    own: Arc<ScalarUDF>,
    ours: Ours,
    signature: Signature,
}

impl PartialEq for Beside {
    fn eq(&self, other: &Self) -> bool {
        self.engine == other.engine && self.own == other.own
    }
}

impl Eq for Beside {}

impl Hash for Beside {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.engine.hash(state);
        self.own.hash(state);
    }
}

impl Beside {
    fn of(&self, types: &[DataType]) -> &ScalarUDF {
        match (self.ours)(types) {
            true => &self.own,
            false => &self.engine,
        }
    }
}

impl ScalarUDFImpl for Beside {
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
        let fields: Vec<FieldRef> = types
            .iter()
            .map(|t| Arc::new(Field::new("", t.clone(), true)))
            .collect();
        Ok(types_of(&fields_with_udf(&fields, self.of(types))?))
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        self.of(types).return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        self.of(&types_of(args.arg_fields))
            .return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        self.of(&types_of(&args.arg_fields)).invoke_with_args(args)
    }
}
