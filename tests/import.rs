//! What users have becomes what the program reads: machines from labels and
//! matrices that owners published, and every product comes back as written.

use lanecast::import::facts::Label;
use lanecast::import::facts::Labels;
use lanecast::import::machine;
use lanecast::import::machine::Wish;
use lanecast::import::read_bytes;
use lanecast::machine::Machine;
use lanecast::machine::Medium;
use lanecast::machine::route::Endpoint;
use lanecast::nccl;

const LABELS: &str = include_str!("fixtures/machines/topo-matrices.txt");
const P2P: &str = include_str!("fixtures/import/p2p-6-gpus.txt");

/// The boxes of the fixture as `nvidia-smi topo -m` prints them: (name, table).
fn tables() -> Vec<(String, String)> {
    let mut found: Vec<(String, Vec<&str>)> = Vec::new();
    for line in LABELS.lines().filter(|l| !l.starts_with('#')) {
        match (line.strip_prefix('['), found.last_mut()) {
            (Some(name), _) => found.push((name.to_owned(), Vec::new())),
            (None, Some(last)) => last.1.push(line),
            (None, None) => {}
        }
    }
    let table = |rows: &[String]| {
        let header: String = (0..rows.len()).map(|i| format!("\tGPU{i}")).collect();
        let body: String = rows.iter().enumerate().map(|(i, r)| format!("GPU{i}\t{}\n", r.replace(' ', "\t"))).collect();
        format!("{header}\tCPU Affinity\tNUMA Affinity\n{body}")
    };
    let table_of = |rows: &[&str]| table(&rows.iter().map(|row| (*row).to_owned()).collect::<Vec<_>>());
    found.iter().map(|(name, rows)| (name.clone(), if name.starts_with('G') { table(&blocks(rows)) } else { table_of(rows) })).collect()
}

/// [G] is written in blocks of four GPUs below one switch: `SW1 PIX NODE …` becomes four rows.
fn blocks(rows: &[&str]) -> Vec<String> {
    let row = |gpu: usize| {
        let cells: Vec<&str> = rows[gpu / 4].split_whitespace().skip(1).collect();
        (0..rows.len() * 4).map(|other| if other == gpu { "X" } else { cells[other / 4] }).collect::<Vec<_>>().join(" ")
    };
    (0..rows.len() * 4).map(row).collect()
}

fn labels(machine: &Machine) -> Labels {
    let count = machine.gpus.len();
    let cell = |a, b| Label::from_cell(&machine.smi_label(a, b).expect("a way")).expect("a label");
    Labels { cells: (0..count).map(|a| (0..count).map(|b| cell(a, b)).collect()).collect() }
}

/// NCCL's own detection finds the types that the labels show, but that it knows no NODE.
fn nccl_agrees(machine: &Machine, name: &str) {
    let devices: Vec<u32> = (0..machine.gpus.len() as u32).collect();
    let topology = nccl::Topology::new(machine, &devices, nccl::Version::NEWEST_READ, &nccl::Environment::default()).expect(name);
    let labels = labels(machine);
    for (a, row) in topology.distances.iter().enumerate() {
        for (b, distance) in row.iter().enumerate().filter(|(b, _)| *b != a) {
            assert_eq!(distance.name(), labels.cells[a][b].cell().replace("NODE", "PHB"), "{name}: {a} to {b}");
        }
    }
}

#[test]
fn labels_of_published_machines_come_back() {
    let tables = tables();
    assert_eq!(tables.len(), 7);
    for (name, table) in tables {
        let outcome = read_bytes("topo.txt", table.as_bytes(), None).expect(&name);
        let machine = machine::machine(&outcome.facts, &Wish::default()).expect(&name);
        assert_eq!(Some(labels(&machine)), outcome.facts.labels, "{name}");
        assert!(machine.notes.iter().any(|n| n.contains("ASSUMED")), "{name}: the kind of GPU is an assumption");
        // What NCCL says: as nvidia-smi, but that it has no NODE.
        for a in 0..machine.gpus.len() {
            for b in 0..machine.gpus.len() {
                let route = machine.route(Endpoint::Gpu(a), Endpoint::Gpu(b)).expect("a way");
                let cell = outcome.facts.labels.as_ref().expect("labels").cells[a][b].cell();
                assert_eq!(route.path.to_string(), cell.replace("NODE", "PHB"), "{name}: {a} to {b}");
            }
        }
        nccl_agrees(&machine, &name);
        let text = machine.to_toml();
        assert_eq!(Machine::from_toml("again.toml", &text).expect("reads back"), machine, "{name}");
    }
}

#[test]
fn a_measured_matrix_gives_its_rates_back() {
    // Six GPUs of two kinds on two sockets: the source says that those from 3 on are behind the other one.
    let labels = "\tGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tCPU Affinity\tNUMA Affinity\n".to_owned()
        + &(0..6)
            .map(|a| {
                let cell = |b: usize| {
                    if a == b {
                        "X"
                    } else if (a < 3) == (b < 3) {
                        "NODE"
                    } else {
                        "SYS"
                    }
                };
                format!("GPU{a}\t{}\t0-63\t{}\n", (0..6).map(cell).collect::<Vec<_>>().join("\t"), a / 3)
            })
            .collect::<String>();
    let mut outcome = read_bytes("topo.txt", labels.as_bytes(), None).expect("labels");
    outcome.merge(read_bytes("p2p.txt", P2P.as_bytes(), None).expect("matrices"));
    let machine = machine::machine(&outcome.facts, &Wish { id: "six".into(), gpu: None, ..Wish::default() }).expect("a machine");
    assert_eq!(machine.sockets().count(), 2);
    assert_eq!((machine.gpu_kind(0).map(|k| k.sms), machine.gpu_kind(5).map(|k| k.sms)), (Some(188), Some(170)));
    nccl_agrees(&machine, "six");
    assert_eq!(self::labels(&machine), outcome.facts.labels.clone().expect("labels"));
    // 56.57 GB/s is PCIe 5.0 x16, which NCCL's search goes by.
    assert!(machine.links.iter().filter(|l| l.medium == Medium::Pcie).all(|l| (l.generation, l.width) == (5, 16)));
    let measured = outcome.facts.bandwidth.iter().find(|m| !m.bidirectional).expect("one way");
    let mut worst: f64 = 0.0;
    for a in 0..6 {
        for b in (0..6).filter(|b| *b != a) {
            let route = machine.route(Endpoint::Gpu(a), Endpoint::Gpu(b)).expect("a way");
            let rates = route
                .hops
                .iter()
                .map(|(link, direction)| machine.link_rate(*link, *direction, lanecast::machine::route::Access::Write).gbps());
            let rate = rates.fold(f64::INFINITY, f64::min);
            let expected = measured.cells[a][b].expect("a number");
            worst = worst.max((rate / expected - 1.0).abs());
        }
    }
    // A GPU's link has one rate a direction: 50.16 to 51.01 GB/s of GPU 3 become 51.01.
    assert!(worst < 0.02, "{worst}");
}

#[test]
fn a_topology_dump_and_bridges_give_the_same_tree() {
    let xml = r#"<system version="1"><cpu numaid="0" affinity="f" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="207">
        <pci busid="0000:01:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
          <pci busid="0000:03:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="0" sm="90" rank="0" gdr="1"/></pci>
          <pci busid="0000:04:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="1" sm="90" rank="1" gdr="1"/></pci>
        </pci></cpu><cpu numaid="1" affinity="f0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="207">
          <pci busid="0000:81:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="8"><gpu dev="2" sm="90" rank="2" gdr="1"/></pci>
        </cpu></system>"#;
    let facts = read_bytes("topo.xml", xml.as_bytes(), None).expect("reads").facts;
    let machine =
        machine::machine(&facts, &Wish { id: String::new(), gpu: Some("h100-pcie".into()), ..Wish::default() }).expect("a machine");
    let label = |a, b| machine.smi_label(a, b).expect("a way");
    assert_eq!((label(0, 1).as_str(), label(0, 2).as_str()), ("PIX", "SYS"));
    // 16 GT/s × 8 lanes: a quarter of 56.46 GB/s.
    let hop = machine.route(Endpoint::Gpu(2), Endpoint::Host(1)).expect("a way").hops[0];
    let rate = machine.link_rate(hop.0, hop.1, lanecast::machine::route::Access::Write).gbps();
    assert!((rate - 14.11).abs() < 0.02, "{rate}");
    assert!(machine::machine(&facts, &Wish { id: String::new(), gpu: Some("no-such".into()), ..Wish::default() }).is_err());
}

#[test]
fn nvlink_labels_become_nvlinks() {
    let table = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tNV4\t0-3\t0\nGPU1\tNV4\tX\t0-3\t0\n";
    let facts = read_bytes("topo.txt", table.as_bytes(), None).expect("reads").facts;
    let machine = machine::machine(&facts, &Wish::default()).expect("a machine");
    assert_eq!(machine.smi_label(0, 1).as_deref(), Some("NV4"));
    let table = "\tGPU0\tGPU1\tGPU2\tGPU3\nGPU0\tX\tNV18\tNV18\tNV18\nGPU1\tNV18\tX\tNV18\tNV18\nGPU2\tNV18\tNV18\tX\tNV18\nGPU3\tNV18\tNV18\tNV18\tX\n";
    let facts = read_bytes("topo.txt", table.as_bytes(), None).expect("reads").facts;
    let machine = machine::machine(&facts, &Wish { id: String::new(), gpu: Some("h200".into()), ..Wish::default() }).expect("a machine");
    assert!(machine.nodes.iter().any(|n| n.id == "nvswitch"));
    assert_eq!(machine.smi_label(0, 3).as_deref(), Some("NV18"));
}

#[test]
fn peers_that_gain_nothing_are_staged() {
    let staged = P2P.replace("Bidirectional P2P=Enabled Bandwidth Matrix", "Unidirectional P2P=Disabled Bandwidth Matrix");
    let unidirectional: Vec<&str> = staged.lines().skip(8).take(6).collect();
    let mut lines: Vec<&str> = staged.lines().collect();
    lines[16..22].copy_from_slice(&unidirectional);
    let text = lines.join("\n");
    let facts = read_bytes("p2p.txt", text.as_bytes(), None).expect("reads").facts;
    assert_eq!(facts.bandwidth.iter().filter(|m| !m.peer_access).count(), 1, "{text}");
    let machine = machine::machine(&facts, &Wish::default()).expect("a machine");
    assert_eq!(machine.peer_access, lanecast::machine::PeerAccess::HostStaged);
}

#[test]
fn nothing_makes_no_machine() {
    let facts = read_bytes("cmdline", b"root=x iommu=pt", None).expect("reads").facts;
    assert_eq!(machine::machine(&facts, &Wish::default()).expect_err("no GPU").code, "import-machine");
}
