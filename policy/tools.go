package policy

import (
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// Class says what kind of effect a tool has; permission modes decide by it. The zero value
// is invalid.
type Class uint8

// The classes of tools.
const (
	// ClassReads is for tools that change nothing and do not use the network.
	ClassReads Class = iota + 1
	// ClassSearches is for tools that change nothing but send requests out of the box.
	ClassSearches
	// ClassPlans is for tools that change only the agent's own to-do list.
	ClassPlans
	// ClassEdits is for tools that change the file named in their input.
	ClassEdits
	// ClassRuns is for all other tools: they run commands, use the network or start agents.
	ClassRuns
)

// Subject says what the text in the parentheses of a tool's rules means.
type Subject uint8

// The kinds of subjects. Rules for a tool with SubjectNone have no parentheses.
const (
	SubjectNone Subject = iota
	// SubjectPath is a file or directory: Read(/etc/**).
	SubjectPath
	// SubjectCommand is a bash program: Bash(git *).
	SubjectCommand
	// SubjectURL is a URL; rules name its host: WebFetch(domain:example.com).
	SubjectURL
	// SubjectName is a name, as of a child agent: Task(reviewer).
	SubjectName
)

// Tool describes a tool to the policy. The runtime that offers a tool registers it. A tool
// that is not registered is denied in every mode, unless it belongs to an MCP server
// (mcp__server__tool).
type Tool struct {
	Name    string
	Class   Class
	Subject Subject
	// Field is the exact name of the input field that holds the subject.
	Field string
	// Optional is true if a call may leave the field out; the tool then uses the working
	// directory.
	Optional bool
}

// standard are the tools that need no registration: the native agent's tools, and other
// tools of Claude Code that rules can name.
var standard = []Tool{
	{Name: "Read", Class: ClassReads, Subject: SubjectPath, Field: "file_path"},
	{Name: "Glob", Class: ClassReads, Subject: SubjectPath, Field: "path", Optional: true},
	{Name: "Grep", Class: ClassReads, Subject: SubjectPath, Field: "path", Optional: true},
	{Name: "LS", Class: ClassReads, Subject: SubjectPath, Field: "path", Optional: true},
	{Name: "Write", Class: ClassEdits, Subject: SubjectPath, Field: "file_path"},
	{Name: "Edit", Class: ClassEdits, Subject: SubjectPath, Field: "file_path"},
	{Name: "Bash", Class: ClassRuns, Subject: SubjectCommand, Field: "command"},
	{Name: "Task", Class: ClassRuns, Subject: SubjectName, Field: "subagent_type"},
	{Name: "WebFetch", Class: ClassRuns, Subject: SubjectURL, Field: "url"},
	{Name: "WebSearch", Class: ClassSearches},
	{Name: "TodoWrite", Class: ClassPlans},
}

// StandardTools returns the tools that every engine knows without registration.
func StandardTools() []Tool { return slices.Clone(standard) }

// tools are the registered tools besides the standard ones. The zero value is empty.
type tools []Tool

// find returns the standard or registered tool with that name, ignoring case.
func (t tools) find(name string) (Tool, bool) {
	for _, list := range [][]Tool{standard, t} {
		for _, tool := range list {
			if strings.EqualFold(tool.Name, name) {
				return tool, true
			}
		}
	}
	return Tool{}, false
}

// with returns t with more tools added. A tool that is registered already must be equal to
// its earlier registration.
func (t tools) with(more []Tool) (tools, error) {
	for _, tool := range more {
		have, known := t.find(tool.Name)
		switch {
		case known && have != tool:
			return nil, holdfast.Errorf(holdfast.KindInvalid, "tools", "tool %s is registered twice with different properties", holdfast.Quote(tool.Name)).
				WithHint("give one of the two tools another name")
		case known:
			continue
		}
		if err := tool.check(); err != nil {
			return nil, err
		}
		t = append(slices.Clip(t), tool)
	}
	return t, nil
}

// check refuses an inconsistent registration, such as an editing tool that names no file.
func (t Tool) check() error {
	bad := func(why string) error {
		return holdfast.Errorf(holdfast.KindInvalid, "tools", "tool %s cannot be registered: %s", holdfast.Quote(t.Name), why).
			WithHint("register the tool with a name, a class, and the input field that rules refer to")
	}
	switch {
	case !toolName(t.Name) || serverTool(t.Name):
		return bad("its name is not a valid tool name")
	case t.Class < ClassReads || t.Class > ClassRuns:
		return bad("its class is not known")
	case t.Subject > SubjectName:
		return bad("its subject is not known")
	case t.Subject == SubjectNone != (t.Field == ""):
		return bad("it must have both a subject and the input field that holds the subject, or neither")
	case t.Class == ClassEdits && t.Subject != SubjectPath:
		return bad("a tool of the editing class must have a path as its subject")
	case t.Optional && (t.Subject != SubjectPath || t.Class != ClassReads):
		return bad("only a tool that reads paths may have an optional path")
	}
	return nil
}

// toolName reports whether name has the form of a tool's name: 1-64 of [A-Za-z0-9_-].
func toolName(name string) bool {
	return name != "" && len(name) <= 64 && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	})
}

// serverTool reports whether a name is that of an MCP server's tool.
func serverTool(name string) bool { return strings.HasPrefix(name, "mcp__") }

// Reads reports whether a standard tool changes nothing and stays in the box.
func Reads(tool string) bool { return tools(nil).reads(tool) }

func (t tools) reads(name string) bool {
	tool, ok := t.find(name)
	return ok && tool.Name == name && tool.Class == ClassReads
}

// Tools returns the registered tools without the standard ones.
func (e *Engine) Tools() []Tool { return slices.Clone(e.tools) }

// Tool returns the standard or registered tool with that name, ignoring case.
func (e *Engine) Tool(name string) (Tool, bool) { return e.tools.find(name) }

// Reads reports whether a registered tool changes nothing and stays in the box.
func (e *Engine) Reads(tool string) bool { return e.tools.reads(tool) }

// Allows reports whether a layer of the engine has an allow rule with the same text as r.
func (e *Engine) Allows(r Rule) bool {
	return slices.ContainsFunc(e.rules.Allow, func(have Rule) bool { return have.String() == r.String() })
}

// ParseRule parses a rule that may name any tool of the engine.
func (e *Engine) ParseRule(s string) (Rule, error) { return ParseRule(s, e.tools...) }
