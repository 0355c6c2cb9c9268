package check

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// Destination is where a box may connect to: a domain, `*.` and a domain for all
// below it, or `*` for every name; and a port, or the usual ones of the web.
type Destination struct {
	Domain string
	// Port is 0 for 80 and 443.
	Port int
}

// ParseDestination reads example.com, *.example.com, example.com:8443 or *. An
// address is none: names are what is granted.
func ParseDestination(s string) (Destination, error) {
	bad := holdfast.Errorf(holdfast.KindInvalid, "network", "%s is no destination", holdfast.Quote(s)).
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

// numeric reports a host that some programs read as an address: one that is an
// address, or whose last label is a number, as in 127.1 or 0x7f.1.
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

// ValidHost is the name that a program asked for in the form that rules are held
// against. Addresses in any form are refused, and what is no name with a dot in it.
func ValidHost(host string) (string, error) {
	name := canonicalHost(host)
	switch {
	case numeric(host):
		return "", holdfast.Errorf(holdfast.KindDenied, "network", "%s is an address, and only names are granted", holdfast.Quote(host))
	case strings.HasPrefix(name, "*") || !ValidDomain(name) || !strings.Contains(name, "."):
		return "", holdfast.Errorf(holdfast.KindDenied, "network", "%s is not the name of a public host", holdfast.Quote(host))
	}
	return name, nil
}

// String is the destination as it is written.
func (d Destination) String() string {
	if d.Port == 0 {
		return d.Domain
	}
	return d.Domain + ":" + strconv.Itoa(d.Port)
}

// Matches reports whether a host and port are meant. The host is one of ValidHost.
func (d Destination) Matches(host string, port int) bool {
	if d.Port != port && (d.Port != 0 || port != 80 && port != 443) {
		return false
	}
	return d.Domain == "*" || domainMatches(d.Domain, host)
}

// Overlaps reports whether there may be a host and port that both mean.
func (d Destination) Overlaps(o Destination) bool {
	if d.Port != o.Port && (d.Port != 0 || o.Port != 80 && o.Port != 443) && (o.Port != 0 || d.Port != 80 && d.Port != 443) {
		return false
	}
	// A name below the other's, whatever the other means.
	below := func(a, b string) bool {
		return b == "*" || strings.HasPrefix(b, "*.") && domainMatches(b, strings.TrimPrefix(a, "*."))
	}
	return d.Domain == o.Domain || below(d.Domain, o.Domain) || below(o.Domain, d.Domain)
}

// Reach is what a box may connect to: what all of its lists name. Without a list it
// is nothing.
type Reach []Destinations

// Destinations is one list, and whose it is.
type Destinations struct {
	// Of is who made the list: the session, the server, settings.
	Of   string
	List []Destination
}

// ParseDestinations reads a list.
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

// Domains is a list of domains as settings hold them. An address among them grants
// nothing.
func Domains(of string, list []string) Destinations {
	out := Destinations{Of: of}
	for _, s := range list {
		if d, err := ParseDestination(s); err == nil {
			out.List = append(out.List, d)
		}
	}
	return out
}

// None reports that nothing can be reached.
func (r Reach) None() bool {
	for _, l := range r {
		if len(l.List) == 0 {
			return true
		}
	}
	return len(r) == 0
}

// Allows holds a host and port against every list. rule is the entry of the first
// that names it; of is whose list does not.
func (r Reach) Allows(host string, port int) (rule, of string, ok bool) {
	for i, l := range r {
		found := false
		for _, d := range l.List {
			if found = d.Matches(host, port); found {
				if i == 0 {
					rule = d.String()
				}
				break
			}
		}
		if !found {
			return "", l.Of, false
		}
	}
	return rule, "", len(r) > 0
}
