package egress

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
)

// ownFor is how long the list of this machine's networks is cached. A new interface is
// noticed when the cache expires.
const ownFor = 5 * time.Second

// The shortest prefixes, in bits, of a network of an interface all of whose addresses count as local. If the
// prefix is shorter, as for a tunnel for all traffic, only the interface's own address counts.
const (
	widest4 = 8
	widest6 = 32
)

// Interfaces lists the networks in which this machine has an address.
func Interfaces() ([]netip.Prefix, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var out []netip.Prefix
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			ip, valid := netip.AddrFromSlice(n.IP)
			ones, _ := n.Mask.Size()
			if valid {
				out = append(out, netip.PrefixFrom(ip.Unmap(), ones))
			}
		}
	}
	return out, nil
}

// own caches the list of this machine's networks. The proxy never connects to their addresses, even
// to public ones, because services that listen there trust the machine and its neighbours. Safe
// for concurrent use.
type own struct {
	read func() ([]netip.Prefix, error)
	now  func() time.Time

	mu    sync.Mutex
	until time.Time
	nets  []netip.Prefix
}

// has reports whether an address lies in one of this machine's networks.
func (o *own) has(a netip.Addr) (bool, error) {
	nets, err := o.networks()
	if err != nil {
		return false, err
	}
	for _, n := range nets {
		if n.Contains(a.Unmap()) {
			return true, nil
		}
	}
	return false, nil
}

func (o *own) networks() ([]netip.Prefix, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := o.now(); now.Before(o.until) && now.After(o.until.Add(-2*ownFor)) {
		return o.nets, nil
	}
	found, err := o.read()
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "proxy", "the addresses of this machine cannot be read: %w", err).
			WithHint("run ip addr as the server's user to see whether it may read the addresses")
	}
	o.nets = o.nets[:0:0]
	for _, n := range found {
		switch a := n.Addr(); {
		case !n.IsValid():
			return nil, holdfast.Errorf(holdfast.KindUnavailable, "proxy", "the network %s, which this machine reported as its own, is not valid", holdfast.Quote(n.String()))
		case a.Is4() && n.Bits() < widest4, a.Is6() && n.Bits() < widest6:
			n = netip.PrefixFrom(a, a.BitLen())
		}
		o.nets = append(o.nets, n.Masked())
	}
	o.until = o.now().Add(ownFor)
	return o.nets, nil
}
