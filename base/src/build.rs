//! Build of the running program: version, commit, date and target.

/// Version of the program, as in `Cargo.toml`, for example `0.1.0`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Commit from which the program was built, as given by the environment variable `TIDEGATE_BUILD_COMMIT` of the
/// build. `None` if it was not set.
pub const COMMIT: Option<&str> = option_env!("TIDEGATE_BUILD_COMMIT");
/// Date of the commit (RFC 3339), as given by `TIDEGATE_BUILD_DATE`. `None` if it was not set.
pub const DATE: Option<&str> = option_env!("TIDEGATE_BUILD_DATE");
/// Target triple of the build, for example `x86_64-unknown-linux-gnu`, as given by `TIDEGATE_BUILD_TARGET`. `None` if
/// it was not set.
pub const TARGET: Option<&str> = option_env!("TIDEGATE_BUILD_TARGET");
