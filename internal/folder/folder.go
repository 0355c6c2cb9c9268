package folder

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// Limits on what a folder may bring; what is beyond is left out.
const (
	// maxText bounds a file that becomes instructions, maxTexts all of them, in bytes.
	maxText, maxTexts = 128 << 10, 4 << 20
	// maxSettings is how large a settings file is that is looked at.
	maxSettings = 1 << 20
	// maxEach is how many skills and commands, sub-agents, or styles count.
	maxEach = 200
	// maxNotices bounds the notices.
	maxNotices = 100
)

// Folder is what a version brings under .claude. The zero value brings nothing. It is
// shared: nobody changes it.
type Folder struct {
	// Skills are the skills and commands, by name.
	Skills []Skill
	// Agents are the sub-agents, by name.
	Agents []Agent
	Styles []Style
	// Style is the name of the output style that the version's settings choose: one of
	// Styles, or one that Claude Code has itself; empty for none.
	Style string
	// Plugin are the files of a plugin directory that holds the skills and styles.
	Plugin []Staged
	// Notices say what was left out, and why.
	Notices []string
	// Sums are the SHA-256 of the files that are instructions, by path, in hex: those of a
	// workspace that say the same add nothing.
	Sums map[string]string
}

// Skill is a skill, or a command.
type Skill struct {
	Name, Description string
	// File is its path in the folder.
	File string
	Body string
	// Command: it is one of .claude/commands. Hidden keeps it from the model, Internal from
	// the user.
	Command, Hidden, Internal bool
}

// Agent is a sub-agent.
type Agent struct {
	Name, Description, Prompt string
	// Tools are the names of the tools it is limited to, as the file has them; nil are all.
	Tools []string
	// Without are tools that it does not get.
	Without []string
}

// Style is an output style.
type Style struct{ Name, Description, Body string }

// Staged is a file of the plugin directory: Content, or a copy of the version's file From.
type Staged struct {
	Path    string
	Content []byte
	From    *holdfast.AgentFile
}

// Skill returns the skill with that name; nil without one.
func (f *Folder) Skill(name string) *Skill {
	if f == nil {
		return nil
	}
	i := slices.IndexFunc(f.Skills, func(s Skill) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &f.Skills[i]
}

// Chosen returns the output style of the folder that its settings choose; nil if there is
// none.
func (f *Folder) Chosen() *Style {
	if f == nil {
		return nil
	}
	i := slices.IndexFunc(f.Styles, func(s Style) bool { return s.Name == f.Style })
	if i < 0 {
		return nil
	}
	return &f.Styles[i]
}

const (
	skillsDir   = ".claude/skills/"
	commandsDir = ".claude/commands/"
	agentsDir   = ".claude/agents/"
	stylesDir   = ".claude/output-styles/"
	skillFile   = "SKILL.md"
	settingsAt  = ".claude/settings.json"
)

// PluginName is the plugin's name: to the CLI, a skill's full name is PluginName:NAME.
const PluginName = "agent"

// builtinStyles are the output styles that Claude Code has itself.
var builtinStyles = []string{"default", "Proactive", "Concise", "Explanatory", "Learning"}

// goodName is how a skill, command or sub-agent may be called.
var goodName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// Read reads the folder of a version from its files, sorted by path; keys reads
// frontmatter. Errors are those of read; a file that makes no sense is left out instead.
func Read(list []holdfast.AgentFile, read func(holdfast.AgentFile) ([]byte, error), keys Keys) (*Folder, error) {
	r := &reader{out: &Folder{Sums: map[string]string{}}, read: read, keys: keys, dirs: map[string]bool{}}
	for _, kind := range []func(holdfast.AgentFile) error{r.skill, r.command, r.agent, r.style, r.rest} {
		for _, f := range list {
			if err := kind(f); err != nil {
				return nil, err
			}
		}
	}
	for i := range list {
		r.beside(&list[i])
	}
	slices.SortFunc(r.out.Skills, func(a, b Skill) int { return strings.Compare(a.Name, b.Name) })
	r.choose()
	if len(r.out.Skills)+len(r.out.Styles) > 0 {
		manifest := fmt.Sprintf("{\"name\":%q,\"version\":\"1.0.0\",\"description\":\"What this agent brings.\"}\n", PluginName)
		r.out.Plugin = append(r.out.Plugin, Staged{Path: ".claude-plugin/plugin.json", Content: []byte(manifest)})
	}
	slices.SortFunc(r.out.Plugin, func(a, b Staged) int { return strings.Compare(a.Path, b.Path) })
	return r.out, nil
}

// reader is one Read.
type reader struct {
	out   *Folder
	read  func(holdfast.AgentFile) ([]byte, error)
	keys  Keys
	bytes int
	// dirs are the directories of the skills that count.
	dirs map[string]bool
	// chosen is the output style that the settings choose.
	chosen string
}

func (r *reader) notice(file, format string, args ...any) {
	if len(r.out.Notices) < maxNotices {
		r.out.Notices = append(r.out.Notices, file+": "+fmt.Sprintf(format, args...))
	}
}

// text reads a file that becomes instructions; nil if it is left out.
func (r *reader) text(f holdfast.AgentFile, have int) (*front, error) {
	switch {
	case f.Size > maxText:
		r.notice(f.Path, "is left out: it is over %d bytes", maxText)
		return nil, nil
	case have >= maxEach || r.bytes+int(f.Size) > maxTexts:
		r.notice(f.Path, "is left out: the folder holds too many")
		return nil, nil
	}
	data, err := r.read(f)
	if err != nil {
		return nil, err
	}
	r.bytes += len(data)
	m, err := parseFront(data, r.keys)
	if err != nil {
		r.notice(f.Path, "is left out: %s", err)
		return nil, nil
	}
	return m, nil
}

// dropped tells which keys are not passed on.
func (r *reader) dropped(file string, m *front) {
	if len(m.dropped) > 0 {
		slices.Sort(m.dropped)
		r.notice(file, "%s: not passed on, the server decides about that", strings.Join(m.dropped, ", "))
	}
	if m.shell {
		r.notice(file, "!`command`: not run, the text is passed on without it")
	}
}

func (r *reader) mayBe(file, name string) bool {
	if !goodName.MatchString(name) {
		r.notice(file, "is left out: %s is not a name of letters, digits, '.', '_' and '-'", holdfast.Quote(name))
		return false
	}
	return true
}

// skill takes .claude/skills/NAME/SKILL.md.
func (r *reader) skill(f holdfast.AgentFile) error {
	rest, ok := strings.CutPrefix(f.Path, skillsDir)
	if !ok {
		return nil
	}
	name, file, _ := strings.Cut(rest, "/")
	if file != skillFile {
		if strings.EqualFold(path.Base(rest), skillFile) {
			r.notice(f.Path, "is left out: a skill is .claude/skills/NAME/SKILL.md")
		}
		return nil
	}
	if !r.mayBe(f.Path, name) {
		return nil
	}
	return r.add(f, name, false)
}

// command takes .claude/commands/NAME.md; its directory does not count.
func (r *reader) command(f holdfast.AgentFile) error {
	rest, ok := strings.CutPrefix(f.Path, commandsDir)
	if !ok || path.Ext(rest) != ".md" {
		return nil
	}
	name := strings.TrimSuffix(path.Base(rest), ".md")
	if !r.mayBe(f.Path, name) {
		return nil
	}
	if s := r.out.Skill(name); s != nil {
		r.notice(f.Path, "is left out: %s has the same name", s.File)
		return nil
	}
	return r.add(f, name, true)
}

func (r *reader) add(f holdfast.AgentFile, name string, command bool) error {
	m, err := r.text(f, len(r.out.Skills))
	if m == nil {
		return err
	}
	s := Skill{Name: name, File: f.Path, Body: m.body, Command: command}
	s.Description = m.text("description")
	if s.Description == "" {
		s.Description = firstLine(m.body)
	}
	if more := m.text("when_to_use"); more != "" {
		s.Description = clip(strings.TrimSpace(s.Description + " " + more))
	}
	hint := m.text("argument-hint")
	s.Hidden = m.yes("disable-model-invocation", false)
	s.Internal = !m.yes("user-invocable", true)
	m.silent("name", "license", "version", "metadata")
	if m.err != nil {
		r.notice(f.Path, "is left out: %s", m.err)
		return nil
	}
	r.dropped(f.Path, m.finish())
	r.out.Skills = append(r.out.Skills, s)
	r.out.Sums[f.Path] = f.SHA256
	if !command {
		r.dirs[name] = true
	}
	keys := []string{"name", name, "description", s.Description, "argument-hint", hint}
	if s.Hidden {
		keys = append(keys, "disable-model-invocation", "true")
	}
	if s.Internal {
		keys = append(keys, "user-invocable", "false")
	}
	r.stage("skills/"+name+"/"+skillFile, keys, m.body)
	return nil
}

// stage adds a text file to the plugin.
func (r *reader) stage(at string, keys []string, body string) {
	r.out.Plugin = append(r.out.Plugin, Staged{Path: at, Content: compose(keys, body)})
}

// beside takes the other files of a skill's directory.
func (r *reader) beside(f *holdfast.AgentFile) {
	rest, ok := strings.CutPrefix(f.Path, skillsDir)
	name, file, _ := strings.Cut(rest, "/")
	if !ok || !r.dirs[name] || strings.EqualFold(path.Base(file), skillFile) {
		return
	}
	if strings.HasPrefix(file, ".") || strings.Contains(file, "/.") {
		r.notice(f.Path, "is left out: its name begins with a dot")
		return
	}
	r.out.Plugin = append(r.out.Plugin, Staged{Path: "skills/" + rest, From: f})
}

// agent takes .claude/agents/NAME.md.
func (r *reader) agent(f holdfast.AgentFile) error {
	rest, ok := strings.CutPrefix(f.Path, agentsDir)
	if !ok || path.Ext(rest) != ".md" {
		return nil
	}
	m, err := r.text(f, len(r.out.Agents))
	if m == nil {
		return err
	}
	a := Agent{Name: m.text("name"), Description: m.text("description"), Prompt: m.body}
	a.Tools, a.Without = m.list("tools"), m.list("disallowedTools")
	m.silent("color")
	switch {
	case m.err != nil:
		r.notice(f.Path, "is left out: %s", m.err)
		return nil
	case a.Name == "" || a.Description == "":
		r.notice(f.Path, "is left out: a sub-agent has a name and a description")
		return nil
	case !r.mayBe(f.Path, a.Name):
		return nil
	case slices.ContainsFunc(r.out.Agents, func(b Agent) bool { return b.Name == a.Name }):
		r.notice(f.Path, "is left out: there is a sub-agent %s already", a.Name)
		return nil
	}
	if m.text("model") != "inherit" {
		m.unread("model")
	}
	r.dropped(f.Path, m.finish())
	r.out.Agents = append(r.out.Agents, a)
	return nil
}

// style takes .claude/output-styles/NAME.md.
func (r *reader) style(f holdfast.AgentFile) error {
	rest, ok := strings.CutPrefix(f.Path, stylesDir)
	if !ok || path.Ext(rest) != ".md" || strings.Contains(rest, "/") {
		return nil
	}
	m, err := r.text(f, len(r.out.Styles))
	if m == nil {
		return err
	}
	s := Style{Name: m.text("name"), Description: m.text("description"), Body: m.body}
	keep := m.yes("keep-coding-instructions", false)
	if s.Name == "" {
		s.Name = strings.TrimSuffix(rest, ".md")
	}
	if m.err != nil {
		r.notice(f.Path, "is left out: %s", m.err)
		return nil
	}
	if !r.mayBe(f.Path, s.Name) {
		return nil
	}
	r.dropped(f.Path, m.finish())
	r.out.Styles = append(r.out.Styles, s)
	keys := []string{"name", s.Name, "description", s.Description}
	if keep {
		keys = append(keys, "keep-coding-instructions", "true")
	}
	r.stage("output-styles/"+s.Name+".md", keys, m.body)
	return nil
}

// rest takes what is no list of files: the instructions' sums, and which style the
// settings choose. Whether the settings make sense is decided elsewhere.
func (r *reader) rest(f holdfast.AgentFile) error {
	switch f.Path {
	case "CLAUDE.md", "AGENTS.md", ".claude/CLAUDE.md":
		r.out.Sums[f.Path] = f.SHA256
	case settingsAt:
		if f.Size > maxSettings {
			return nil
		}
		data, err := r.read(f)
		if err != nil {
			return err
		}
		var set struct {
			Style any `json:"outputStyle"`
		}
		if json.Unmarshal(data, &set) == nil {
			r.chosen, _ = set.Style.(string)
		}
	}
	return nil
}

// choose settles the output style.
func (r *reader) choose() {
	r.out.Style = r.chosen
	if r.chosen != "" && r.out.Chosen() == nil && !slices.Contains(builtinStyles, r.chosen) {
		r.notice(settingsAt, "outputStyle: there is no output style %s", holdfast.Quote(r.chosen))
		r.out.Style = ""
	}
}
