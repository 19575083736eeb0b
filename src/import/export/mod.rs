//! What other tools read: written here, beside the readers it must agree with.
//!
//! | file | for |
//! |---|---|
//! | [`tuner`] | NCCL's example tuner plugin |
//! | [`topology_xml`] | `NCCL_TOPO_FILE` |
//! | [`chakra`] | simulators that take Chakra execution traces |
//! | [`goal`] | LogGOPSim's schedules |

pub mod chakra;
pub mod goal;
pub mod topology_xml;
pub mod tuner;
