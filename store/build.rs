//! Makes cargo rebuild when a migration is added; the embedding macro cannot declare that dependency itself.

fn main() {
    let out = "cargo:rerun-if-changed=../migrations\n";
    std::io::Write::write_all(&mut std::io::stdout(), out.as_bytes())
        .expect("cargo reads the output of build scripts");
}
