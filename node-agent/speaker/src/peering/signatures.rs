//! Kernel counters of TCP segments dropped because of their MD5 signature. These counters are the only
//! indication of a wrong password.

/// File with the TCP counters of the network namespace of the calling thread.
const COUNTERS: &str = "/proc/thread-self/net/netstat";
/// Names of the kernel counters of segments with a missing, an unexpected and a wrong signature.
const NAMES: [&str; 3] = ["TCPMD5NotFound", "TCPMD5Unexpected", "TCPMD5Failure"];

/// Returns the number of TCP segments that the kernel dropped because their MD5 signature was missing,
/// unexpected or wrong, or `None` if the kernel does not provide these counters.
pub(super) fn failures() -> Option<u64> {
    sum(&std::fs::read_to_string(COUNTERS).ok()?)
}

/// Parses the content of `/proc/net/netstat` and returns the sum of the counters in [`NAMES`]. The file has
/// pairs of lines: names, then values in the same order. Returns `None` if the file has no pair of `TcpExt`
/// lines.
fn sum(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let named = names.split_whitespace().zip(values.split_whitespace());
    let wanted =
        named.filter(|(name, _)| NAMES.contains(name)).filter_map(|(_, value)| value.parse::<u64>().ok());
    Some(wanted.fold(0, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_counters_are_summed_and_others_are_left_out() {
        let text = "TcpExt: SyncookiesSent TCPMD5NotFound TCPMD5Unexpected TCPMD5Failure\n\
                    TcpExt: 100 1 20 300\nIpExt: InNoRoutes\nIpExt: 7\n";
        assert_eq!(sum(text), Some(321));
        assert_eq!(sum("TcpExt: TCPMD5Failure\n"), None);
        assert_eq!(sum(""), None);
    }
}
