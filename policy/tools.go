package policy

import (
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// Class is what a tool does, as far as permission modes are concerned. The zero value
// is illegal.
type Class uint8

// The classes.
const (
	// ClassReads changes nothing and stays in the box.
	ClassReads Class = iota + 1
	// ClassSearches changes nothing but sends requests out of the box.
	ClassSearches
	// ClassPlans changes only the agent's own list.
	ClassPlans
	// ClassEdits changes the file that the input names.
	ClassEdits
	// ClassRuns does anything else: runs commands, reaches out, starts agents.
	ClassRuns
)

// Subject is the kind of text in the parentheses of a tool's rules.
type Subject uint8

// The subjects. A tool without one takes no parentheses.
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

// Tool is the registration of a tool, made by the runtime that offers it. A tool that is
// not registered is denied in every mode, unless it is one of an MCP server (mcp__server__tool).
type Tool struct {
	Name    string
	Class   Class
	Subject Subject
	// Field is the input field that holds the subject, spelled exactly so.
	Field string
	// Optional: without the field the tool works in the working directory.
	Optional bool
}

// standard are the tools that every engine knows: those of the native agent, and those
// that have rule forms, in Claude Code's spelling.
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

// StandardTools are the tools that every engine knows without registration.
func StandardTools() []Tool { return slices.Clone(standard) }

// tools are the registered tools besides the standard ones. The zero value is empty.
type tools []Tool

// find returns the tool of a name, ignoring case.
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

// with adds tools. A tool that is registered already must have the same registration.
func (t tools) with(more []Tool) (tools, error) {
	for _, tool := range more {
		have, known := t.find(tool.Name)
		switch {
		case known && have != tool:
			return nil, holdfast.Errorf(holdfast.KindInvalid, "tools", "%s is registered twice, and not as the same tool", holdfast.Quote(tool.Name)).
				WithHint("give one of the two another name")
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

// check refuses a registration whose tool would lack the rules that its class promises.
func (t Tool) check() error {
	bad := func(why string) error {
		return holdfast.Errorf(holdfast.KindInvalid, "tools", "tool %s: %s", holdfast.Quote(t.Name), why).
			WithHint("register a name, a class, and the input field that rules are about")
	}
	switch {
	case !toolName(t.Name) || serverTool(t.Name):
		return bad("that is not the name of a tool")
	case t.Class < ClassReads || t.Class > ClassRuns:
		return bad("its class is not known")
	case t.Subject > SubjectName:
		return bad("what its rules are about is not known")
	case t.Subject == SubjectNone != (t.Field == ""):
		return bad("a subject and the input field that holds it go together")
	case t.Class == ClassEdits && t.Subject != SubjectPath:
		return bad("a tool that edits names the file that it edits")
	case t.Optional && (t.Subject != SubjectPath || t.Class != ClassReads):
		return bad("only a tool that reads may leave its path out")
	}
	return nil
}

// toolName reports whether a tool may have this name.
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

// Tools are the registered tools besides the standard ones.
func (e *Engine) Tools() []Tool { return slices.Clone(e.tools) }

// Tool returns the registered tool of a name, ignoring case.
func (e *Engine) Tool(name string) (Tool, bool) { return e.tools.find(name) }

// Reads reports whether a registered tool changes nothing and stays in the box.
func (e *Engine) Reads(tool string) bool { return e.tools.reads(tool) }

// ParseRule reads a rule that may name any registered tool.
func (e *Engine) ParseRule(s string) (Rule, error) { return ParseRule(s, e.tools...) }
