//! Loads of custom kernels are served from system memory; NCCL, which stores, does not notice.

use crate::error::Result;
use crate::import::facts::Facts;
use crate::machine::PeerAccess;
use crate::strategy::Executor;

use super::hypothesis::Hypothesis;
use super::scenario::Scenario;

/// The hypothesis.
pub const HYPOTHESIS: Hypothesis = Hypothesis {
    id: "driver-staged",
    summary: "the driver grants peer access but keeps peers' data in system memory",
    measure: "loads from system memory, GB/s",
    levels: &[8.0, 3.3, 1.4],
    continuous: true,
    apply,
    check: "cat /proc/driver/nvidia/params | grep RegistryDwords; time the custom kernel against NCCL at 114 KB",
    check_minutes: 2,
    tells: "no ForceP2P among RegistryDwords on a board without a switch; the custom kernel takes many times NCCL's time",
    remedy: r#"options nvidia NVreg_RegistryDwords="ForceP2P=0x11;RMForceP2PType=1;RMPcieP2PType=2" in modprobe.d, then reboot"#,
    way_back: "remove the option and reboot; meanwhile --disable-custom-all-reduce",
    risk: "a wrong registry option can keep the driver from loading",
    source: "rtx6kpro pcie-oneshot-allreduce: 242 us in place of 16 at 114 KB; each of 4 ranks reads 3 x 114 KB in 242 us: 1.4 GB/s (of 8 ranks 3.3)",
    seen,
};

fn apply(scenario: &mut Scenario, level: f64) -> Result<bool> {
    if scenario.machine.peer_access != PeerAccess::Direct || scenario.strategy.executor == Executor::Nccl {
        return Ok(false);
    }
    scenario.machine.peer_access = PeerAccess::DriverStaged;
    scenario.machine.set("fabric.host_read_gbps", level)?;
    Ok(true)
}

fn seen(facts: &Facts) -> Option<(bool, String)> {
    facts.force_p2p.map(|forced| (!forced, format!("driver parameters: ForceP2P {}", if forced { "is set" } else { "is not set" })))
}
