package egress

import (
	"strings"

	"github.com/holdfast-run/holdfast"
)

// Grant is something that a request may ask for beyond the list.
type Grant string

// The grants. A server tool is granted by its name without the date: web_search,
// web_fetch, code_execution, tool_search_tool_regex, bash, … A member of the request
// that the list does not know is granted as field:NAME.
const (
	// GrantMCP lets the provider connect to MCP servers.
	GrantMCP Grant = "mcp_servers"
	// GrantContainer lets it run code in containers of its own.
	GrantContainer Grant = "container"
	// GrantURLs lets it fetch images and documents by address.
	GrantURLs Grant = "url_sources"
	// GrantFiles lets requests name files that the account keeps with the provider.
	GrantFiles Grant = "files"
)

// ParseGrant refuses what is no grant.
func ParseGrant(s string) (Grant, error) {
	name := strings.TrimPrefix(s, "field:")
	if name == "" || len(name) > 64 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return "", holdfast.Errorf(holdfast.KindInvalid, "broker", "%s is no grant", holdfast.Quote(s)).
			WithHint("use %s, %s, %s, %s, the name of a server tool as web_search, or field:NAME", GrantMCP, GrantContainer, GrantURLs, GrantFiles)
	}
	return Grant(s), nil
}

type grants map[Grant]bool

func newGrants(list []Grant) grants {
	g := grants{}
	for _, one := range list {
		g[one] = true
	}
	return g
}

// need refuses what is not granted.
func (g grants) need(one Grant, what string) error {
	if g[one] {
		return nil
	}
	return holdfast.Errorf(holdfast.KindInvalid, "broker", "%s is not granted to boxes of this server", what).
		WithHint("the operator may add %s to broker.allow", one)
}

// undated is the name of a server tool's type without its date.
func undated(kind string) string {
	i := strings.LastIndexByte(kind, '_')
	if i > 0 && len(kind)-i == 9 && strings.Trim(kind[i+1:], "0123456789") == "" {
		return kind[:i]
	}
	return kind
}
