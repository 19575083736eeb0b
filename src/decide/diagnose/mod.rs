//! What is really slow: the explanations that fit all observations at once.
//!
//! | file | what it holds |
//! |---|---|
//! | [`kind`], [`observed`], [`gather`] | what can be observed, how it is read from arguments and files |
//! | [`scenario`], [`forecast`], [`copies`] | a state of the server, and what would be observed in it |
//! | [`hypothesis`] | what every hypothesis states; each has a file of its own, [`hypothesis::ALL`] lists them |
//! | [`fit`], [`search`] | how far a forecast is from the observations; singles and pairs in order |
//! | [`verdict`], [`contradiction`] | classes of equal explanations, what tells them apart, what cannot hold together |

pub mod acs;
pub mod clock_limit;
pub mod contradiction;
pub mod copies;
pub mod corruption;
pub mod declined;
pub mod driver_staged;
pub mod expert_imbalance;
pub mod facts_file;
pub mod few_threads;
pub mod fit;
pub mod forecast;
pub mod gather;
pub mod host_staged;
pub mod hypothesis;
pub mod iommu;
pub mod kind;
pub mod link_trained_low;
pub mod memo;
pub mod observed;
pub mod one_channel;
pub mod posted_write_collapse;
pub mod profiler_waiting;
pub mod scenario;
pub mod search;
pub mod slow_host;
pub mod straggler;
pub mod verdict;
pub mod verify_outside_graph;
pub mod wrong_protocol;
