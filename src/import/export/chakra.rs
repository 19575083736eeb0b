//! Chakra execution traces: one protobuf file a rank, each message after its
//! length. Written by hand: two messages do not need a compiler.
//!
//! Field numbers are those of MLCommons' `et_def.proto`. Its times are whole
//! microseconds, so each node also carries `duration_ns`.

use std::collections::BTreeMap;

use crate::import::kernel_name;
use crate::trace::observation::Collective;
use crate::trace::record::Kind;
use crate::trace::record::Record;

/// `NodeType` of the schema.
const COMP_NODE: u64 = 4;
const COMM_COLL_NODE: u64 = 7;

/// Wire types of protobuf.
const VARINT: u64 = 0;
const BYTES: u64 = 2;

/// Field numbers of `AttributeProto`'s values.
const INT64: u64 = 9;
const BOOL: u64 = 27;
const STRING: u64 = 29;

/// One file a rank, in the order of ranks. Operations of one stream follow
/// each other; a collective also waits for what its rank computed before.
pub fn write(records: &[Record]) -> BTreeMap<u32, Vec<u8>> {
    let mut files: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let mut sorted: Vec<&Record> = records.iter().collect();
    sorted.sort_by(|a, b| (a.rank, a.start, a.end, &a.op).cmp(&(b.rank, b.start, b.end, &b.op)));
    let mut last: BTreeMap<(u32, String), u64> = BTreeMap::new();
    let mut id = 0;
    let mut rank = None;
    for record in sorted {
        let file = files.entry(record.rank).or_insert_with(metadata);
        if rank != Some(record.rank) {
            (rank, id) = (Some(record.rank), 0);
        }
        id += 1;
        let stream = record.detail("stream").unwrap_or("0").to_owned();
        let mut needs: Vec<u64> = last.get(&(record.rank, stream.clone())).copied().into_iter().collect();
        if record.kind == Kind::Communication {
            let others = last.range((record.rank, String::new())..=(record.rank, "\u{10ffff}".to_owned())).map(|(_, id)| *id);
            needs.extend(others);
            needs.sort_unstable();
            needs.dedup();
        }
        message(file, &node(record, id, &needs));
        last.insert((record.rank, stream), id);
    }
    files
}

fn metadata() -> Vec<u8> {
    let mut file = Vec::new();
    let mut message_bytes = Vec::new();
    bytes(&mut message_bytes, 1, b"0.0.4");
    message(&mut file, &message_bytes);
    file
}

fn node(record: &Record, id: u64, needs: &[u64]) -> Vec<u8> {
    let collective = record.kind == Kind::Communication;
    let mut out = Vec::new();
    field(&mut out, 1, id);
    bytes(&mut out, 2, record.name.as_bytes());
    field(&mut out, 3, if collective { COMM_COLL_NODE } else { COMP_NODE });
    if !needs.is_empty() {
        let mut packed = Vec::new();
        needs.iter().for_each(|n| varint(&mut packed, *n));
        bytes(&mut out, 5, &packed);
    }
    let duration_ps = record.end.0 - record.start.0.min(record.end.0);
    field(&mut out, 6, record.start.0 / 1_000_000);
    // Simulators drop nodes without duration.
    field(&mut out, 7, (duration_ps + 500_000).checked_div(1_000_000).unwrap_or(0).max(1));
    attribute(&mut out, "is_cpu_op", BOOL, 0);
    attribute(&mut out, "duration_ns", INT64, duration_ps / 1000);
    if collective {
        attribute(&mut out, "comm_type", INT64, comm_type(record));
        attribute(&mut out, "comm_size", INT64, record.bytes);
        let mut group = Vec::new();
        bytes(&mut group, 1, b"pg_name");
        bytes(&mut group, STRING, b"0");
        bytes(&mut out, 10, &group);
    } else if record.bytes > 0 {
        attribute(&mut out, "tensor_size", INT64, record.bytes);
    }
    out
}

/// `CollectiveCommType` of the schema, by the operation's id or name.
fn comm_type(record: &Record) -> u64 {
    let told = kernel_name::communication(&record.name).and_then(|c| c.collective);
    let id = record.op.to_ascii_lowercase().replace('_', "");
    match told {
        Some(Collective::AllGather) => 2,
        Some(Collective::Broadcast) => 5,
        Some(Collective::AllToAll) => 6,
        Some(Collective::ReduceScatter) => 7,
        Some(Collective::Reduce) => 1,
        Some(_) => 0,
        None if id.contains("allgather") || id.contains("gather") => 2,
        None if id.contains("alltoall") || id.contains("dispatch") || id.contains("combine") => 6,
        None if id.contains("reducescatter") => 7,
        None => 0,
    }
}

fn attribute(out: &mut Vec<u8>, name: &str, kind: u64, value: u64) {
    let mut attribute = Vec::new();
    bytes(&mut attribute, 1, name.as_bytes());
    // Of a oneof, zero too is written: absent would be unset.
    varint(&mut attribute, kind << 3 | VARINT);
    varint(&mut attribute, value);
    bytes(out, 10, &attribute);
}

fn message(file: &mut Vec<u8>, content: &[u8]) {
    varint(file, content.len() as u64);
    file.extend_from_slice(content);
}

fn field(out: &mut Vec<u8>, number: u64, value: u64) {
    varint(out, number << 3 | VARINT);
    varint(out, value);
}

fn bytes(out: &mut Vec<u8>, number: u64, content: &[u8]) {
    varint(out, number << 3 | BYTES);
    varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Time;

    fn read_varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().expect("a byte");
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    }

    /// Fields of a message: number → (value, or bytes).
    fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let key = read_varint(&mut bytes);
            let value = read_varint(&mut bytes);
            if key & 7 == BYTES {
                let (content, rest) = bytes.split_at(usize::try_from(value).expect("short"));
                found.push((key >> 3, 0, content.to_vec()));
                bytes = rest;
            } else {
                found.push((key >> 3, value, Vec::new()));
            }
        }
        found
    }

    fn messages(mut file: &[u8]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        while !file.is_empty() {
            let length = usize::try_from(read_varint(&mut file)).expect("short");
            let (content, rest) = file.split_at(length);
            found.push(content.to_vec());
            file = rest;
        }
        found
    }

    #[test]
    fn nodes_follow_their_stream() {
        let record = |op: &str, kind, start, stream| Record {
            pass: 0,
            rank: 1,
            op: op.into(),
            name: op.into(),
            kind,
            layer: None,
            start: Time::from_us(start),
            end: Time::from_us(start + 29.4),
            bytes: 43008,
            detail: format!("stream={stream}"),
        };
        let files = write(&[
            record("gemm", Kind::Compute, 0.0, 1),
            record("copy", Kind::Copy, 1.0, 2),
            record("L000.attn_allreduce.r1", Kind::Communication, 30.0, 1),
        ]);
        let nodes = messages(&files[&1]);
        assert_eq!(nodes.len(), 4);
        let last = fields(&nodes[3]);
        let of = |number: u64| last.iter().find(|f| f.0 == number).expect("the field");
        assert_eq!((of(1).1, of(3).1, of(6).1, of(7).1), (3, COMM_COLL_NODE, 30, 29));
        assert_eq!(of(5).2, [1, 2]);
        let sizes: Vec<_> = last.iter().filter(|f| f.0 == 10).map(|f| fields(&f.2)).filter(|a| a[0].2 == b"comm_size").collect();
        assert_eq!((sizes[0][1].0, sizes[0][1].1), (INT64, 43008));
    }

    #[test]
    fn large_numbers_are_whole() {
        let mut out = Vec::new();
        varint(&mut out, u64::MAX);
        assert_eq!(read_varint(&mut out.as_slice()), u64::MAX);
        varint(&mut out, 300);
        assert_eq!(&out[10..], [0xac, 0x02]);
    }
}
