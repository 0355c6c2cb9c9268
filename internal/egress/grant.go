package egress

import (
	"strings"

	"github.com/holdfast-run/holdfast"
)

// Grant is a feature that the operator allows in model requests of boxes beyond the built-in list.
type Grant string

// The grants. A tool that the provider runs is granted by its name without the date: web_search, web_fetch,
// code_execution, tool_search_tool_regex, bash, … A request field that is not among the allowed fields of its
// API is granted as field:NAME.
const (
	// GrantMCP lets the provider connect to MCP servers.
	GrantMCP Grant = "mcp_servers"
	// GrantContainer lets the provider run code in its own containers.
	GrantContainer Grant = "container"
	// GrantURLs lets the provider fetch images and documents by URL.
	GrantURLs Grant = "url_sources"
	// GrantFiles lets requests refer to files that the account has stored with the provider.
	GrantFiles Grant = "files"
)

// ParseGrant parses a grant; invalid if s cannot be one.
func ParseGrant(s string) (Grant, error) {
	name := strings.TrimPrefix(s, "field:")
	if name == "" || len(name) > 64 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return "", holdfast.Errorf(holdfast.KindInvalid, "broker", "%s is not a grant for model requests", holdfast.Quote(s)).
			WithHint("use one of the grants %s, %s, %s, %s, the name of a server tool such as web_search, or field:NAME", GrantMCP, GrantContainer, GrantURLs, GrantFiles)
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

// need returns nil if the grant one is in g, otherwise the error that refuses the request. what describes the
// refused part of the request.
func (g grants) need(one Grant, what string) error {
	if g[one] {
		return nil
	}
	return holdfast.Errorf(holdfast.KindInvalid, "broker", "this server does not allow boxes to use %s in model requests", what).
		WithHint("the server's operator may add %s to broker.allow in the configuration", one)
}

// undated returns the type of a server tool without the date that it ends with, as in web_search_20250305.
func undated(kind string) string {
	i := strings.LastIndexByte(kind, '_')
	if i > 0 && len(kind)-i == 9 && strings.Trim(kind[i+1:], "0123456789") == "" {
		return kind[:i]
	}
	return kind
}
