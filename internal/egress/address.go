package egress

import (
	"context"
	"net"
	"net/netip"

	"github.com/holdfast-run/holdfast"
)

// special are the reserved ranges without public addresses that the methods of netip.Addr do not
// report.
var special = func() []netip.Prefix {
	var out []netip.Prefix
	for _, s := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
		"203.0.113.0/24", "240.0.0.0/4",
		// At this address Azure gives every virtual machine data about itself.
		"168.63.129.16/32",
		"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	} {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}()

// globalUnicast is the part of IPv6 from which public addresses are assigned. Addresses that embed
// an IPv4 address for translation, such as NAT64, lie outside.
var globalUnicast = netip.MustParsePrefix("2000::/3")

// Public reports whether an address lies outside of all reserved ranges, so that it can be on the public
// internet. Networks to which this machine is attached are checked separately, by the type own.
func Public(a netip.Addr) bool {
	if a.Zone() != "" {
		return false
	}
	a = a.Unmap()
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.Is6() && !globalUnicast.Contains(a) {
		return false
	}
	for _, p := range special {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// resolve looks a host name up with the server's resolver. It returns the addresses that are public and in no
// network of this machine; denied if none is left.
func (p *Proxy) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	all, err := p.cfg.Resolve(ctx, host)
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "proxy", "the host name %s cannot be resolved", holdfast.Quote(host))
	}
	var out []netip.Addr
	for _, a := range all {
		if !Public(a) {
			continue
		}
		here, err := p.own.has(a)
		if err != nil {
			return nil, err
		}
		if !here {
			out = append(out, a.Unmap())
		}
	}
	if len(out) == 0 {
		return nil, holdfast.Errorf(holdfast.KindDenied, "proxy", "the host %s has no public address outside the networks of the server's machine", holdfast.Quote(host))
	}
	return out, nil
}

// dial connects to the first of the addresses that accepts a connection, and returns that address. It tries at most
// maxAddresses of them. The caller has checked the addresses; dial does not look the host name up again.
func (p *Proxy) dial(ctx context.Context, addrs []netip.Addr, port int) (net.Conn, netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var err error
	for _, a := range addrs[:min(len(addrs), maxAddresses)] {
		var conn net.Conn
		if conn, err = p.cfg.Dial(ctx, netip.AddrPortFrom(a, uint16(port))); err == nil {
			return conn, a, nil
		}
	}
	return nil, netip.Addr{}, holdfast.Errorf(holdfast.KindUnavailable, "proxy", "no address of the host accepts a connection: %w", err)
}

// Resolve returns the addresses of a host name, from the server's own resolver. The dot that it
// appends keeps search domains from being tried.
func Resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host+".")
}

// Dial connects to an address over TCP.
func Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
}
