//! The identity of topics: what tells a topic that was deleted and created again from the old one.
//!
//! The client library's safe interface does not ask for it, so this file calls the C interface:
//! one request, its own queue, everything freed here. Brokers before 2.8 give no identities.

use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::time::Duration;

use rdkafka::bindings as c;
use rdkafka::consumer::Consumer;
use rdkafka::error::RDKafkaErrorCode;

use super::client::KafkaConsumer;
use super::offsets::TopicIds;

/// Frees a C object when it goes out of scope.
struct Freed<T>(*mut T, unsafe extern "C" fn(*mut T));

impl<T> Drop for Freed<T> {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: the pointer came from the library's constructor and is freed only here.
            unsafe { (self.1)(self.0) }
        }
    }
}

/// Identities of topics by name, without those that have none. Blocks up to `timeout`.
pub fn ask(
    consumer: &KafkaConsumer,
    topics: &[String],
    timeout: Duration,
) -> Result<TopicIds, RDKafkaErrorCode> {
    let names: Vec<CString> = topics
        .iter()
        .filter_map(|topic| CString::new(topic.as_str()).ok())
        .collect();
    let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    let client = consumer.client().native_ptr();
    // SAFETY: the client outlives this call, and every object lives until its `Freed` is dropped:
    // the event, then the queue, the options and the names.
    unsafe {
        let collection = Freed(
            c::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len()),
            c::rd_kafka_TopicCollection_destroy,
        );
        let options = Freed(
            c::rd_kafka_AdminOptions_new(
                client,
                c::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS,
            ),
            c::rd_kafka_AdminOptions_destroy,
        );
        c::rd_kafka_AdminOptions_set_request_timeout(options.0, timeout_ms, ptr::null_mut(), 0);
        let queue = Freed(c::rd_kafka_queue_new(client), c::rd_kafka_queue_destroy);
        c::rd_kafka_DescribeTopics(client, collection.0, options.0, queue.0);
        let event = Freed(
            c::rd_kafka_queue_poll(queue.0, timeout_ms),
            c::rd_kafka_event_destroy,
        );
        if event.0.is_null() {
            return Err(RDKafkaErrorCode::OperationTimedOut);
        }
        let code: RDKafkaErrorCode = c::rd_kafka_event_error(event.0).into();
        if code != RDKafkaErrorCode::NoError {
            return Err(code);
        }
        let result = c::rd_kafka_event_DescribeTopics_result(event.0);
        if result.is_null() {
            return Ok(TopicIds::new());
        }
        let mut count = 0usize;
        let described = c::rd_kafka_DescribeTopics_result_topics(result, &mut count);
        Ok((0..count)
            .filter_map(|i| read_one(*described.add(i)))
            .collect())
    }
}

/// Name and identity of a described topic.
///
/// # Safety
/// `topic` points to a description whose event is still alive.
unsafe fn read_one(topic: *const c::rd_kafka_TopicDescription_t) -> Option<(String, String)> {
    // SAFETY: the caller's promise; name and identity live as long as the description.
    unsafe {
        let name = c::rd_kafka_TopicDescription_name(topic);
        let id = c::rd_kafka_TopicDescription_topic_id(topic);
        if name.is_null() || id.is_null() {
            return None;
        }
        let id = uuid::Uuid::from_u64_pair(
            c::rd_kafka_Uuid_most_significant_bits(id) as u64,
            c::rd_kafka_Uuid_least_significant_bits(id) as u64,
        );
        let name = CStr::from_ptr(name).to_string_lossy().into_owned();
        (!id.is_nil()).then(|| (name, id.to_string()))
    }
}
