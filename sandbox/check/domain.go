package check

import (
	"net/netip"
	"slices"
	"strings"
)

// Domain decides whether a host name or IP address, without a port, may be reached. Case
// and a final dot of names are ignored; an IP address is allowed only if it is listed itself.
func (c *Checker) Domain(host string) Verdict {
	if c.settings.Network == nil {
		return allowed
	}
	if slices.ContainsFunc(c.settings.Network.AllowedDomains, func(rule string) bool { return MatchDomain(rule, host) }) {
		return allowed
	}
	return Verdict{Code: CodeDomain, Subject: host, Reason: "the domain is not among the settings' network.allowedDomains"}
}

// MatchDomain reports whether an entry of allowedDomains includes a host.
func MatchDomain(rule, host string) bool {
	name := canonicalHost(host)
	return name != "" && domainMatches(canonicalHost(rule), name)
}

func canonicalHost(h string) string {
	h = strings.TrimSuffix(strings.ToLower(strings.Trim(h, "[]")), ".")
	if a, err := netip.ParseAddr(h); err == nil {
		return a.Unmap().String()
	}
	return h
}

func domainMatches(rule, host string) bool {
	below, wild := strings.CutPrefix(rule, "*.")
	if !wild {
		return rule == host
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return false
	}
	return strings.HasSuffix(host, "."+below)
}

// ValidDomain reports whether d is valid as an entry of allowedDomains.
func ValidDomain(d string) bool {
	name := strings.TrimPrefix(d, "*.")
	if _, err := netip.ParseAddr(strings.Trim(d, "[]")); err == nil {
		return true
	}
	if name == "" || len(name) > 253 {
		return false
	}
	for _, label := range strings.Split(strings.TrimSuffix(name, "."), ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "-") != label {
			return false
		}
		for _, r := range label {
			if r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
				return false
			}
		}
	}
	return true
}
