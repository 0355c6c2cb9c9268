package policy

import (
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// Destination says where a change of the permissions is stored.
type Destination string

// The destinations, by the names that Claude Code uses.
const (
	ToUser    Destination = "userSettings"
	ToProject Destination = "projectSettings"
	ToLocal   Destination = "localSettings"
	ToSession Destination = "session"
	ToCLI     Destination = "cliArg"
)

// UpdateType says what a change of the permissions does.
type UpdateType string

// The types of changes of the permissions.
const (
	AddRules          UpdateType = "addRules"
	ReplaceRules      UpdateType = "replaceRules"
	RemoveRules       UpdateType = "removeRules"
	SetMode           UpdateType = "setMode"
	AddDirectories    UpdateType = "addDirectories"
	RemoveDirectories UpdateType = "removeDirectories"
)

// Update is one change of the permissions.
type Update struct {
	Type        UpdateType  `json:"type"`
	Destination Destination `json:"destination"`
	// Behavior names the list of rules to change: allow, ask or deny.
	Behavior    string        `json:"behavior,omitempty"`
	Rules       []string      `json:"rules,omitempty"`
	Mode        holdfast.Mode `json:"mode,omitempty"`
	Directories []string      `json:"directories,omitempty"`
}

// Permissions holds rules and directories by the destination where they are stored, and the
// permission mode.
type Permissions struct {
	Rules       map[Destination]RuleSet
	Directories map[Destination][]string
	Mode        holdfast.Mode
	// Tools are the tools that rules may name besides the standard ones.
	Tools []Tool
}

// All returns the rules of all destinations in one set.
func (p Permissions) All() RuleSet {
	var out RuleSet
	for _, d := range slices.Sorted(maps.Keys(p.Rules)) {
		r := p.Rules[d]
		out.Allow, out.Ask, out.Deny = append(out.Allow, r.Allow...), append(out.Ask, r.Ask...), append(out.Deny, r.Deny...)
	}
	return out
}

// Apply returns a copy of p with a change made. An invalid change fails with invalid; the error quotes the field, rule,
// mode or directory that is wrong.
func (p Permissions) Apply(u Update) (Permissions, error) {
	switch u.Destination {
	case ToUser, ToProject, ToLocal, ToSession, ToCLI:
	default:
		return p, badUpdate("destination", string(u.Destination))
	}
	out := Permissions{Rules: maps.Clone(p.Rules), Directories: maps.Clone(p.Directories), Mode: p.Mode, Tools: p.Tools}
	var err error
	switch u.Type {
	case AddRules, ReplaceRules, RemoveRules:
		err = out.changeRules(u)
	case SetMode:
		out.Mode, err = holdfast.Parse[holdfast.Mode](string(u.Mode))
	case AddDirectories, RemoveDirectories:
		err = out.changeDirectories(u)
	default:
		err = badUpdate("type", string(u.Type))
	}
	if err != nil {
		return p, err
	}
	return out, nil
}

func badUpdate(field, value string) error {
	return holdfast.Errorf(holdfast.KindInvalid, "permission update", "the %s %s of a permission update is not known", field, holdfast.Quote(value))
}

func (p *Permissions) changeRules(u Update) error {
	if p.Rules == nil {
		p.Rules = map[Destination]RuleSet{}
	}
	set := p.Rules[u.Destination]
	list := map[string]*[]Rule{"allow": &set.Allow, "ask": &set.Ask, "deny": &set.Deny}[u.Behavior]
	if list == nil {
		return badUpdate("behavior", u.Behavior)
	}
	var rules []Rule
	for _, s := range u.Rules {
		r, err := ParseRule(s, p.Tools...)
		if err != nil {
			return err
		}
		rules = append(rules, r)
	}
	switch u.Type {
	case ReplaceRules:
		*list = rules
	case RemoveRules:
		*list = slices.DeleteFunc(slices.Clone(*list), func(r Rule) bool { return slices.Contains(rules, r) })
	default:
		*list = slices.Clone(*list)
		for _, r := range rules {
			if !slices.Contains(*list, r) {
				*list = append(*list, r)
			}
		}
	}
	p.Rules[u.Destination] = set
	return nil
}

func (p *Permissions) changeDirectories(u Update) error {
	if p.Directories == nil {
		p.Directories = map[Destination][]string{}
	}
	for i, d := range u.Directories {
		if !strings.HasPrefix(d, "/") || strings.ContainsRune(d, 0) {
			return holdfast.Errorf(holdfast.KindInvalid, "permission update", "directories[%d] of a permission update: %s is not an absolute path", i, holdfast.Quote(d))
		}
	}
	have := slices.DeleteFunc(slices.Clone(p.Directories[u.Destination]), func(d string) bool { return slices.Contains(u.Directories, d) })
	if u.Type == AddDirectories {
		have = append(have, u.Directories...)
	}
	p.Directories[u.Destination] = have
	return nil
}
