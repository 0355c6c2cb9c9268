package check

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// Destination is a place that a box may connect to: a domain, `*.` and a domain for all
// names below it, or `*` for every name; with one port, or with ports 80 and 443.
type Destination struct {
	Domain string
	// Port is the port; 0 means both 80 and 443.
	Port int
}

// ParseDestination parses example.com, *.example.com, example.com:8443 or *. It refuses IP
// addresses, because only names are granted.
func ParseDestination(s string) (Destination, error) {
	bad := holdfast.Errorf(holdfast.KindInvalid, "network", "%s is not a valid network destination", holdfast.Quote(s)).
		WithHint("write example.com, *.example.com for all below it, example.com:8443 for another port than 80 and 443, or * for every name")
	d := Destination{Domain: s}
	if name, port, ok := strings.Cut(s, ":"); ok {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
			return Destination{}, bad
		}
		d = Destination{Domain: name, Port: int(n)}
	}
	d.Domain = canonicalHost(d.Domain)
	if d.Domain == "*" {
		return d, nil
	}
	if !ValidDomain(d.Domain) || strings.Contains(d.Domain, "_") || numeric(strings.TrimPrefix(d.Domain, "*.")) {
		return Destination{}, bad
	}
	return d, nil
}

// numeric reports whether some programs would read a host as an IP address: it is one, or
// its last label is a number, as in 127.1 or 0x7f.1.
func numeric(host string) bool {
	host = strings.TrimSuffix(host, ".")
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	last := strings.ToLower(host[strings.LastIndexByte(host, '.')+1:])
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}

// ValidHost returns the host name that a program asked for in the canonical form that rules
// are compared with. It refuses IP addresses in any form, and names without a dot.
func ValidHost(host string) (string, error) {
	name := canonicalHost(host)
	switch {
	case numeric(host):
		return "", holdfast.Errorf(holdfast.KindDenied, "network", "the host %s is an IP address, but boxes may connect only to host names", holdfast.Quote(host))
	case strings.HasPrefix(name, "*") || !ValidDomain(name) || !strings.Contains(name, "."):
		return "", holdfast.Errorf(holdfast.KindDenied, "network", "the host %s is not the name of a public host", holdfast.Quote(host))
	}
	return name, nil
}

// String returns the destination in the form that ParseDestination accepts.
func (d Destination) String() string {
	if d.Port == 0 {
		return d.Domain
	}
	return d.Domain + ":" + strconv.Itoa(d.Port)
}

// Matches reports whether d includes a host and port. host must come from ValidHost.
func (d Destination) Matches(host string, port int) bool {
	if d.Port != port && (d.Port != 0 || port != 80 && port != 443) {
		return false
	}
	return d.Domain == "*" || domainMatches(d.Domain, host)
}

// Overlaps reports whether d and o can both include the same host and port.
func (d Destination) Overlaps(o Destination) bool {
	return (d.hasPorts(o) || o.hasPorts(d)) && (d.hasNames(o) || o.hasNames(d))
}

// Includes reports whether d includes every host and port that o includes.
func (d Destination) Includes(o Destination) bool { return d.hasPorts(o) && d.hasNames(o) }

func (d Destination) hasPorts(o Destination) bool {
	return d.Port == o.Port || d.Port == 0 && (o.Port == 80 || o.Port == 443)
}

func (d Destination) hasNames(o Destination) bool {
	return d.Domain == o.Domain || d.Domain == "*" ||
		strings.HasPrefix(d.Domain, "*.") && domainMatches(d.Domain, strings.TrimPrefix(o.Domain, "*."))
}

// Reach says where a box may connect to: to the destinations that are in all of its lists.
// A Reach without lists allows none.
type Reach []Destinations

// Destinations is one list of destinations, and who made the list.
type Destinations struct {
	// Of names who made the list: the session, the server or the settings.
	Of   string
	List []Destination
}

// ParseDestinations parses each entry of a list. of names who made the list, for Destinations.Of.
func ParseDestinations(of string, list []string) (Destinations, error) {
	out := Destinations{Of: of}
	for _, s := range list {
		d, err := ParseDestination(s)
		if err != nil {
			return out, err
		}
		out.List = append(out.List, d)
	}
	return out, nil
}

// Domains converts a list of domains from sandbox settings. It drops IP addresses, which therefore allow nothing.
func Domains(of string, list []string) Destinations {
	out := Destinations{Of: of}
	for _, s := range list {
		if d, err := ParseDestination(s); err == nil {
			out.List = append(out.List, d)
		}
	}
	return out
}

// None reports whether r allows no destination at all.
func (r Reach) None() bool {
	return len(r) == 0 || slices.ContainsFunc(r, func(l Destinations) bool { return len(l.List) == 0 })
}

// Allows reports whether every list includes a host and port. If so, rule is the entry of
// the first list that includes it; if not, of is the author of the first list that does not.
func (r Reach) Allows(host string, port int) (rule, of string, ok bool) {
	for i, l := range r {
		at := slices.IndexFunc(l.List, func(d Destination) bool { return d.Matches(host, port) })
		if at < 0 {
			return "", l.Of, false
		}
		if i == 0 {
			rule = l.List[at].String()
		}
	}
	return rule, "", len(r) > 0
}
