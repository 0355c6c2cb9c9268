package config

import (
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// Network are the settings of the network access and the model requests of boxes.
type Network struct {
	// Allow are the destinations that any box may be granted at most, Default those of sessions
	// that name none themselves.
	Allow, Default []string
	// Broker are the features that boxes' model requests may use beyond the broker's list.
	Broker []string
	// Content tells whether the texts of boxes' model requests and answers are recorded.
	Content Switch
}

func networkKeys() []key {
	return []key{
		list("network.allow", "What the boxes of this server may be granted at the most, as pypi.org, *.npmjs.org, example.com:8443, or * for every public name. If the list is empty, no box has a network. A session gets the destinations of this list that it names, see network.default and docs/egress.md.",
			"destinations", func(c *Config) *[]string { return &c.Network.Allow }, destination),
		list("network.default", "What sessions are granted that name nothing and whose agent names nothing, within network.allow.",
			"destinations", func(c *Config) *[]string { return &c.Network.Default }, destination),
		list("broker.allow", "What requests of boxes to models may ask for beyond the list: web_search, web_fetch, code_execution or another server tool by its name, mcp_servers, container, url_sources, files, or field:NAME for a field that is not known. The provider then reaches out itself, and past network.allow.",
			"grants", func(c *Config) *[]string { return &c.Network.Broker }, func(s string) error {
				if n := strings.TrimPrefix(s, "field:"); n == "" || strings.Trim(n, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
					return fmt.Errorf("use names as web_search, mcp_servers or field:NAME")
				}
				return nil
			}),
		oneOf("broker.content", "Whether model.request events of boxes hold what was sent and answered, and not only how much it was.",
			func(c *Config) *Switch { return &c.Network.Content }, Off, On),
	}
}

func destination(s string) error {
	if _, err := check.ParseDestination(s); err != nil {
		return fmt.Errorf("%s", holdfast.HintOf(err))
	}
	return nil
}
