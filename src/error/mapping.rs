//! Libraries' errors to PostgreSQL's SQLSTATEs.
use super::Error;
use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;

impl From<ArrowError> for Error {
    fn from(e: ArrowError) -> Self {
        Error::internal(e.to_string())
    }
}
impl From<DataFusionError> for Error {
    fn from(e: DataFusionError) -> Self {
        Error::internal(e.to_string())
    }
}
impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        Error::transient(super::sqlstate::IO_ERROR, e.to_string())
    }
}
