# The first process of the router of compose.yaml; packed into its image. The router lives as long as its bgpd.
set -e
common="-u root -g root --log stdout -f /dev/null"
/usr/lib/frr/zebra -d $common
/usr/lib/frr/bfdd -d $common
/usr/lib/frr/bgpd $common &
until [ -S /run/frr/bgpd.vty ]; do sleep 1; done
vtysh -b
wait
