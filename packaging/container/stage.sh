# Puts programs of this machine, with the libraries that they are linked with, into directories that become images. Read by images.sh
# and lab-images.sh.
#
# The C library of the machine comes along: names are then looked up in an image as they are on the machine (`files` and `dns` are
# part of glibc since 2.34), which a program that is linked with it statically would not promise. Static programs need nothing
# and are packed as they are.

# stage_begin DIRECTORY: a root with users and names.
stage_begin() {
  rm -rf "$1"
  mkdir -p "$1"/{etc,usr/bin,run,proc,sys,dev,tmp}
  chmod 1777 "$1/tmp"
  printf 'root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n' >"$1/etc/passwd"
  printf 'root:x:0:\nnonroot:x:65532:\n' >"$1/etc/group"
  printf 'hosts: files dns\n' >"$1/etc/nsswitch.conf"
}

# stage_authorities DIRECTORY: those whom the machine trusts, for control servers with certificates of others.
stage_authorities() {
  mkdir -p "$1/etc/ssl/certs"
  cp -L /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/"
}

# stage_libraries DIRECTORY FILE…: what the files are linked with, where they look for it.
stage_libraries() {
  local root=$1 file library
  shift
  for file in "$@"; do
    # Of a static program ldd says so, and fails; it has none.
    while read -r library; do
      [ -e "$root$library" ] || install -D -m 755 "$(readlink -f "$library")" "$root$library"
    done < <(ldd "$file" 2>/dev/null | grep -o '/[^ ]*')
  done
}

# stage_program DIRECTORY FILE WHERE: a program with its libraries.
stage_program() {
  install -D -m 755 "$2" "$1$3"
  strip --strip-all "$1$3" 2>/dev/null || true
  stage_libraries "$1" "$2"
}

# stage_image NAME DIRECTORY: makes the image of what is in DIRECTORY, by NAME.Dockerfile. With ARCHIVES, a directory, it becomes
# a file there, and no engine is needed.
stage_image() {
  local here architecture
  here=$(dirname "${BASH_SOURCE[0]}")
  cp "$here/$1.Dockerfile" "$2/Dockerfile"
  if [ -n "${ARCHIVES:-}" ]; then
    architecture=$(dpkg --print-architecture)
    "$here/archive.py" "$2" "$1:$VERSION" "$architecture" "$ARCHIVES/$1-$VERSION-$architecture.tar"
    echo "$ARCHIVES/$1-$VERSION-$architecture.tar"
    return
  fi
  "${ENGINE:-docker}" build --quiet --tag "$1:$VERSION" --tag "$1:latest" \
    --label "org.opencontainers.image.version=$VERSION" "$2" >/dev/null
  echo "$1:$VERSION"
}
