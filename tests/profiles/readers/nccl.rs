//! Messages of collectives from the payloads of NCCL's NVTX ranges. No export with payloads is at hand: the
//! tables of their schemas are those of an export of a job with NCCL, the payloads are made to fit.

use super::{PID, TID, note, open, text, with};

/// Payload types of NVTX: INT, UINT64, SIZE.
const SCHEMAS: &str = "
    CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER, schemaId INTEGER, idx INTEGER, flags INTEGER,
        type INTEGER, name TEXT, description TEXT, arrayOrUnionDetail INTEGER, offset INTEGER);
    INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES
        (1, 16777218, 0, NULL, 18, 'NCCL communicator ID', NULL, NULL, NULL),
        (1, 16777218, 1, NULL, 5, 'No. of ranks', NULL, NULL, 8),
        (1, 16777218, 2, NULL, 5, 'Rank', NULL, NULL, 12),
        (1, 16777220, 0, NULL, 18, 'NCCL communicator ID', NULL, NULL, NULL),
        (1, 16777220, 1, NULL, 22, 'Message size [bytes]', NULL, NULL, 8),
        (1, 16777230, 0, NULL, 18, 'NCCL communicator ID', NULL, NULL, NULL);
    ALTER TABLE NVTX_EVENTS ADD COLUMN binaryData TEXT;
    INSERT INTO StringIds VALUES (20, 'ncclGroupStart'), (21, 'ncclGroupEnd'),
        (22, 'ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096>)'),
        (23, 'ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096>)');
    ";

/// The payload of a range: header, communicator, and one more field.
fn payload(schema: u32, communicator: u64, field: &[u8]) -> String {
    let size = 8 + field.len() as u64;
    let mut bytes = Vec::new();
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(0_u32.to_le_bytes());
    bytes.extend(schema.to_le_bytes());
    bytes.extend(0_u32.to_le_bytes());
    bytes.extend(size.to_le_bytes());
    bytes.extend((32 + size).to_le_bytes());
    bytes.extend(communicator.to_le_bytes());
    bytes.extend(field);
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

fn message(communicator: u64, bytes: u64) -> String {
    payload(16_777_220, communicator, &bytes.to_le_bytes())
}

fn range(start: i64, end: i64, name: &str, payload: &str) -> String {
    format!(
        "INSERT INTO NVTX_EVENTS VALUES ({start}, {end}, 59, '{name}', {TID}, NULL, 1, {payload});"
    )
}

/// The beginning or the end of a group of calls, whose names are registered.
fn group(start: i64, end: i64, name: i64) -> String {
    format!("INSERT INTO NVTX_EVENTS VALUES ({start}, {end}, 59, NULL, {TID}, {name}, 1, NULL);")
}

/// A launch at `start`, and its kernel with the name of this number.
fn launch(start: i64, correlation: i64, name: i64) -> String {
    format!(
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({start}, {}, 0, {TID}, {correlation}, 2, 0);
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({}, {}, 0, 1, 7, {correlation}, {PID}, {name},
             {name}, 8, 1, 1, 128, 1, 1, 40, 0, 0, 0, NULL);",
        start + 5,
        start + 1000,
        start + 1500,
    )
}

/// The arguments of the messages in the order of their kernels.
fn messages(sql: &[String]) -> (Vec<String>, Option<String>) {
    let built = with(&format!("{SCHEMAS}{}", sql.concat()));
    let profile = open(&built.path).unwrap();
    let said = profile.messages.iter();
    let said = said.map(|m| text(&profile, m.args).to_owned()).collect();
    (said, note(&profile, "payloads_damaged").map(str::to_owned))
}

#[test]
fn collectives_have_the_sizes_that_nccl_recorded() {
    let ranks = payload(16_777_218, 7, &8_u32.to_le_bytes());
    let pair = payload(16_777_218, 8, &2_u32.to_le_bytes());
    let (said, damage) = messages(&[
        range(1020, 1030, "ncclCommInitRank", &format!("X'{pair}'")),
        range(1000, 1010, "ncclCommInitRank", &format!("X'{ranks}'")),
        // A call on its own, in a file that stores payloads as hexadecimal text.
        range(
            2000,
            2100,
            "ncclAllReduce",
            &format!("'{}'", message(7, 1 << 20)),
        ),
        launch(2050, 30, 22),
        // PyTorch opens a group around each call: kernels are launched when it ends.
        group(3000, 3001, 20),
        range(
            3010,
            3020,
            "ncclAllGather",
            &format!("X'{}'", message(7, 4096)),
        ),
        group(3030, 3100, 21),
        launch(3050, 31, 22),
        // Exchanged with all other ranks, in one kernel.
        group(4000, 4001, 20),
        range(4010, 4011, "ncclSend", &format!("X'{}'", message(7, 100))),
        range(4020, 4021, "ncclSend", &format!("X'{}'", message(7, 200))),
        range(4030, 4031, "ncclRecv", &format!("X'{}'", message(7, 50))),
        group(4040, 4100, 21),
        launch(4050, 32, 23),
        // With one other rank.
        range(5000, 5100, "ncclSend", &format!("X'{}'", message(7, 100))),
        launch(5050, 33, 23),
        // With all ranks, oneself included.
        group(6000, 6001, 20),
        range(6010, 6011, "ncclSend", &format!("X'{}'", message(8, 64))),
        range(6020, 6021, "ncclRecv", &format!("X'{}'", message(8, 64))),
        range(6030, 6031, "ncclSend", &format!("X'{}'", message(8, 64))),
        range(6040, 6041, "ncclRecv", &format!("X'{}'", message(8, 64))),
        group(6050, 6100, 21),
        launch(6060, 34, 23),
    ]);
    assert_eq!(
        said,
        [
            r#"{"Collective name":"all_reduce","In msg bytes":1048576,"Out msg bytes":1048576,"Group size":8}"#,
            r#"{"Collective name":"all_gather","In msg bytes":4096,"Out msg bytes":32768,"Group size":8}"#,
            r#"{"Collective name":"send_recv","In msg bytes":300,"Out msg bytes":50,"Group size":8}"#,
            r#"{"Collective name":"send_recv","In msg bytes":100,"Out msg bytes":0,"Group size":8}"#,
            r#"{"Collective name":"all_to_all","In msg bytes":128,"Out msg bytes":128,"Group size":2}"#,
        ]
    );
    assert_eq!(damage, None);
}

#[test]
fn unknown_messages_stay_unknown() {
    let whole = message(7, 4096);
    let cut = &whole[..whole.len() - 2];
    let (said, damage) = messages(&[
        // Of a communicator that was made before the capture: the size of the result is not known.
        range(2000, 2100, "ncclAllGather", &format!("X'{whole}'")),
        launch(2050, 30, 22),
        range(3000, 3100, "ncclAllReduce", &format!("X'{cut}'")),
        launch(3050, 31, 22),
        // Different messages in two kernels: which has which is not certain.
        group(4000, 4001, 20),
        range(
            4010,
            4011,
            "ncclAllReduce",
            &format!("X'{}'", message(7, 100)),
        ),
        range(
            4020,
            4021,
            "ncclAllReduce",
            &format!("X'{}'", message(7, 200)),
        ),
        group(4040, 4100, 21),
        launch(4050, 32, 22),
        launch(4070, 33, 22),
        // Text of another tool in the same column.
        range(5000, 5100, "ncclBroadcast", "'not a payload'"),
        launch(5050, 34, 22),
    ]);
    assert_eq!(said, Vec::<String>::new());
    assert_eq!(
        damage.as_deref(),
        Some(
            "NVTX payloads of NCCL that end before the size of their message: 1; these sizes are unknown."
        )
    );
}
