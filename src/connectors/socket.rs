//! stub until merge
use super::ConnectorEnvironment;
use crate::catalog::definition::CatalogObject;
use crate::error::{Error, Result};
pub struct SocketReceiver;
impl SocketReceiver {
    pub fn start(_: &CatalogObject, _: &ConnectorEnvironment) -> Result<Self> {
        Err(Error::unsupported("socket"))
    }
    pub async fn stop(self) {}
}
