package check

import (
	"slices"

	"github.com/holdfast-run/holdfast"
)

// Narrow returns the settings for a child agent: the child's own, restricted to what s allows. It fails if a list of
// allowed paths of the child has nothing in common with that of s, because an empty list would allow everything. If s
// has EnableWeakerNestedSandbox, Narrow returns the child's settings unchanged.
func (s Settings) Narrow(child Settings) (Settings, error) {
	if err := child.Validate(); err != nil {
		return Settings{}, err
	}
	if s.EnableWeakerNestedSandbox {
		return child, nil
	}
	var out Settings
	var err error
	if out.AllowedReadPaths, err = common("allowedReadPaths", s.AllowedReadPaths, child.AllowedReadPaths); err != nil {
		return Settings{}, err
	}
	if out.AllowedWritePaths, err = common("allowedWritePaths", s.AllowedWritePaths, child.AllowedWritePaths); err != nil {
		return Settings{}, err
	}
	out.DeniedPaths = union(s.DeniedPaths, child.DeniedPaths)
	out.DeniedWritePaths = union(s.DeniedWritePaths, child.DeniedWritePaths)
	out.AllowedCommands, out.DeniedCommands = narrowCommands(s, child)
	out.AllowNestedSandbox = s.AllowNestedSandbox && child.AllowNestedSandbox
	out.AutoAllowBashIfSandboxed = s.AutoAllowBashIfSandboxed && child.AutoAllowBashIfSandboxed
	out.AllowUnsandboxedCommands = s.AllowUnsandboxedCommands && child.AllowUnsandboxedCommands
	out.IgnoreViolations = child.IgnoreViolations
	out.Network = narrowNetwork(s.Network, child.Network)
	out.Ripgrep = s.Ripgrep
	return out, nil
}

// union returns a and then the values of b that are not in a.
func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, v := range b {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// common returns the intersection of two lists of allowed roots; an empty list allows all paths.
func common(field string, parent, child []string) ([]string, error) {
	if len(parent) == 0 || len(child) == 0 {
		return union(parent, child), nil
	}
	var out []string
	for _, p := range parent {
		for _, c := range child {
			switch {
			case within(clean(c), clean(p)):
				out = union(out, []string{c})
			case within(clean(p), clean(c)):
				out = union(out, []string{p})
			}
		}
	}
	if len(out) == 0 {
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "setting %s: the path %s is outside everything that the parent agent's settings allow", field, holdfast.Quote(child[0])).
			WithHint("name paths below %s", parent[0])
	}
	return out, nil
}

// narrowCommands combines the command lists of parent and child: only commands that both allow remain allowed.
func narrowCommands(parent, child Settings) (allow, deny []string) {
	deny = union(parent.DeniedCommands, child.DeniedCommands)
	switch {
	case parent.AllowedCommands == nil && child.AllowedCommands == nil:
		return nil, deny
	case parent.AllowedCommands == nil:
		allow, deny = child.AllowedCommands, parent.DeniedCommands
	case child.AllowedCommands == nil:
		allow, deny = parent.AllowedCommands, child.DeniedCommands
	default:
		allow, deny = child.AllowedCommands, nil
		allow = slices.DeleteFunc(slices.Clone(allow), func(c string) bool { return !slices.Contains(parent.AllowedCommands, c) })
	}
	denied := map[string]bool{}
	for _, d := range deny {
		denied[baseName(d)] = true
	}
	kept := slices.DeleteFunc(slices.Clone(allow), func(c string) bool { return denied[baseName(c)] })
	if kept == nil {
		kept = []string{}
	}
	return kept, nil
}

func narrowNetwork(parent, child *Network) *Network {
	switch {
	case parent == nil:
		return child
	case child == nil:
		return parent
	}
	out := *child
	out.AllowedDomains = nil
	for _, p := range parent.AllowedDomains {
		for _, c := range child.AllowedDomains {
			pc, cc := canonicalHost(p), canonicalHost(c)
			switch {
			case pc == cc || domainMatches(pc, cc):
				out.AllowedDomains = union(out.AllowedDomains, []string{c})
			case domainMatches(cc, pc):
				out.AllowedDomains = union(out.AllowedDomains, []string{p})
			}
		}
	}
	out.AllowManagedDomainsOnly = parent.AllowManagedDomainsOnly || child.AllowManagedDomainsOnly
	out.AllowLocalBinding = parent.AllowLocalBinding && child.AllowLocalBinding
	out.AllowUnixSockets = parent.AllowUnixSockets && child.AllowUnixSockets
	out.AllowAllUnixSockets = parent.AllowAllUnixSockets && child.AllowAllUnixSockets
	out.HTTPProxyPort, out.SOCKSProxyPort = parent.HTTPProxyPort, parent.SOCKSProxyPort
	return &out
}
