//! Makes cargo embed the migrations again when one is added: a macro cannot say so by itself.

fn main() {
    let out = "cargo:rerun-if-changed=../migrations\n";
    std::io::Write::write_all(&mut std::io::stdout(), out.as_bytes())
        .expect("cargo reads the output of build scripts");
}
