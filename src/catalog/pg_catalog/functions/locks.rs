//! `pg_advisory_lock` and its kin; waiting holds no thread, and ends at once when its statement is
//! cancelled.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{Array, AsArray, BooleanArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};

use super::super::advisory::{AdvisoryLocks, LockKey, LockMode, LockScope};
use super::super::model::Catalog;
use crate::error::{Error, Result};

/// What a function does with its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Action {
    /// waits until it has it
    Take,
    /// says whether it has it
    Try,
    Release,
}

const FUNCTIONS: &[(&str, Action, LockMode, LockScope)] = &[
    (
        "pg_advisory_lock",
        Action::Take,
        LockMode::Exclusive,
        LockScope::Session,
    ),
    (
        "pg_advisory_lock_shared",
        Action::Take,
        LockMode::Shared,
        LockScope::Session,
    ),
    (
        "pg_advisory_xact_lock",
        Action::Take,
        LockMode::Exclusive,
        LockScope::Transaction,
    ),
    (
        "pg_advisory_xact_lock_shared",
        Action::Take,
        LockMode::Shared,
        LockScope::Transaction,
    ),
    (
        "pg_try_advisory_lock",
        Action::Try,
        LockMode::Exclusive,
        LockScope::Session,
    ),
    (
        "pg_try_advisory_lock_shared",
        Action::Try,
        LockMode::Shared,
        LockScope::Session,
    ),
    (
        "pg_try_advisory_xact_lock",
        Action::Try,
        LockMode::Exclusive,
        LockScope::Transaction,
    ),
    (
        "pg_try_advisory_xact_lock_shared",
        Action::Try,
        LockMode::Shared,
        LockScope::Transaction,
    ),
    (
        "pg_advisory_unlock",
        Action::Release,
        LockMode::Exclusive,
        LockScope::Session,
    ),
    (
        "pg_advisory_unlock_shared",
        Action::Release,
        LockMode::Shared,
        LockScope::Session,
    ),
];

struct LockFunction {
    name: &'static str,
    action: Action,
    mode: LockMode,
    scope: LockScope,
    catalog: Arc<Catalog>,
    signature: Signature,
}

/// The functions over a session's catalog.
pub(super) fn functions(catalog: &Arc<Catalog>) -> Vec<ScalarUDF> {
    let function = |(name, action, mode, scope): &(&'static str, Action, LockMode, LockScope)| {
        let function = LockFunction {
            name,
            action: *action,
            mode: *mode,
            scope: *scope,
            catalog: catalog.clone(),
            signature: Signature::one_of(
                vec![TypeSignature::Any(1), TypeSignature::Any(2)],
                Volatility::Volatile,
            ),
        };
        AsyncScalarUDF::new(Arc::new(function)).into_scalar_udf()
    };
    FUNCTIONS.iter().map(function).collect()
}

impl LockFunction {
    fn locks(&self) -> &AdvisoryLocks {
        self.catalog.facts.backends.advisory_locks()
    }

    /// `None` for `void`.
    async fn carry_out(&self, key: LockKey) -> Result<Option<bool>> {
        let pid = self.catalog.facts.backend.pid();
        match self.action {
            Action::Try => Ok(Some(self.locks().try_take(pid, key, self.mode, self.scope))),
            Action::Release => Ok(Some(self.locks().release(pid, key, self.mode))),
            Action::Take => {
                let within = self.catalog.facts.parameters.duration("lock_timeout");
                self.locks()
                    .take(pid, key, self.mode, self.scope, within)
                    .await?;
                Ok(None)
            }
        }
    }
}

impl std::fmt::Debug for LockFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LockFunction({})", self.name)
    }
}

impl PartialEq for LockFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.catalog, &other.catalog)
    }
}

impl Eq for LockFunction {}

impl Hash for LockFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for LockFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> PlanResult<DataType> {
        Ok(match self.action {
            Action::Take => DataType::Utf8,
            Action::Try | Action::Release => DataType::Boolean,
        })
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let error = Error::unsupported(format!("{} cannot be used here", self.name))
            .hint("Use it in the list of SELECT.");
        Err(DataFusionError::External(Box::new(error)))
    }
}

#[async_trait]
impl AsyncScalarUDFImpl for LockFunction {
    async fn invoke_async_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let numbers = args
            .args
            .iter()
            .map(|argument| {
                let array = cast(&argument.to_array(args.number_rows)?, &DataType::Int64)?;
                Ok(array.as_primitive::<Int64Type>().clone())
            })
            .collect::<PlanResult<Vec<Int64Array>>>()?;
        let mut told = Vec::with_capacity(args.number_rows);
        for row in 0..args.number_rows {
            let Some(key) = key(&numbers, row) else {
                told.push(None);
                continue;
            };
            let outcome = self.carry_out(key).await;
            told.push(outcome.map_err(|e| DataFusionError::External(Box::new(e)))?);
        }
        Ok(ColumnarValue::Array(match self.action {
            Action::Take => ScalarValue::Utf8(Some(String::new())).to_array_of_size(told.len())?,
            Action::Try | Action::Release => Arc::new(BooleanArray::from(told)),
        }))
    }
}

/// The lock of a row; `None` where an argument is NULL.
fn key(numbers: &[Int64Array], row: usize) -> Option<LockKey> {
    let number = |at: usize| {
        numbers
            .get(at)
            .filter(|n| n.is_valid(row))
            .map(|n| n.value(row))
    };
    match numbers.len() {
        1 => number(0).map(LockKey::One),
        _ => Some(LockKey::Two(
            i32::try_from(number(0)?).ok()?,
            i32::try_from(number(1)?).ok()?,
        )),
    }
}
