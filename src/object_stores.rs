//! Object stores by their URLs, for checkpoints, sources and sinks: how long a request is tried.
//!
//! The library tries a request ten times over minutes before it says that a store does not answer.
//! Here it does so a few times over seconds: a pipeline then waits with a back-off of its own, and says
//! in its status why. What a location or the environment says about the time of a request goes before.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{BackoffConfig, ObjectStore, ObjectStoreScheme, Result, RetryConfig};
use url::{Position, Url};

/// A request as a whole, its body included: a run of the state over a slow line.
const REQUEST_TIMEOUT: &str = "120 seconds";
const CONNECT_TIMEOUT: &str = "5 seconds";

fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(2),
            base: 2.0,
        },
        max_retries: 4,
        retry_timeout: Duration::from_secs(20),
    }
}

/// The store of a URL and the path in it. Options are the library's, by their names, later ones over
/// earlier ones; others are passed over.
pub(crate) fn open(
    url: &Url,
    options: impl IntoIterator<Item = (String, String)>,
) -> Result<(Arc<dyn ObjectStore>, Path)> {
    let own = [
        ("timeout", REQUEST_TIMEOUT),
        ("connect_timeout", CONNECT_TIMEOUT),
    ];
    let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let options = own.into_iter().chain(options);
    macro_rules! built {
        ($builder:ty, $url:expr) => {{
            let builder = <$builder>::new().with_url($url).with_retry(retries());
            let builder = options.fold(builder, |builder, (name, value)| {
                match name.to_ascii_lowercase().parse() {
                    Ok(key) => builder.with_config(key, value),
                    Err(_) => builder,
                }
            });
            Arc::new(builder.build()?) as Arc<dyn ObjectStore>
        }};
    }
    let (scheme, path) = ObjectStoreScheme::parse(url)?;
    let path = Path::parse(path)?;
    let store = match scheme {
        ObjectStoreScheme::AmazonS3 => built!(AmazonS3Builder, url.to_string()),
        ObjectStoreScheme::MicrosoftAzure => built!(MicrosoftAzureBuilder, url.to_string()),
        ObjectStoreScheme::GoogleCloudStorage => {
            built!(GoogleCloudStorageBuilder, url.to_string())
        }
        ObjectStoreScheme::Http => built!(HttpBuilder, url[..Position::BeforePath].to_owned()),
        // Folders and memory have no requests.
        _ => Arc::from(object_store::parse_url(url)?.0),
    };
    Ok((store, path))
}
