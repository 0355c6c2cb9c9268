package check

import (
	"maps"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/holdfast-run/holdfast"
)

// Analysis is what a bash program consists of, as far as can be said without
// running it.
type Analysis struct {
	// Commands are all simple commands anywhere in it, those that launchers and
	// nested shells would run included, in the order found.
	Commands  []Command
	Redirects []Redirect
	// Opaque are the parts that could not be read.
	Opaque []Opaque
	// Unsure lists parts that do not cause a denial but prevent an automatic allowance:
	// unknown options, variables that may name programs.
	Unsure []Opaque
	// MoreThanCommands: the program does something that Commands do not show. It sets a
	// variable, redirects a file, substitutes, loops, branches or defines a function; a
	// nested program counts too. Two such programs may have the same Commands.
	MoreThanCommands bool

	left *bounds
}

// Command is a simple command: a program, builtin or function, and its arguments
// with quotes taken away. Of an argument that is computed the source is given, and
// Computed says so.
type Command struct {
	Name     string
	Args     []string
	Computed bool
	Pos      int
	// Bare holds the arguments without the options that precede a subcommand: push of git
	// -C . push. Nil if no options precede it.
	Bare []string
	// Lent: a launcher such as npx runs the command. Here: the command runs in the
	// directory where the program starts.
	Lent, Here bool

	words []word
	// cwds are the directories it may run in; none: not known.
	cwds []string
	// tabled: the program's table lists every file that the command opens.
	tabled bool
	files  []file
	links  []link
}

// Redirect is a file that a redirection opens.
type Redirect struct {
	Path string
	// Writes says that it may change the file.
	Writes bool
	Pos    int

	target word
	ops    []Op
	cwds   []string
}

// Opaque is a part that only running it would explain.
type Opaque struct {
	Code    Code
	Reason  string
	Subject string
	Pos     int
	// interpreter is the program whose own language it is written in.
	interpreter string
}

// Analyze reads a bash program as if it started in cwd (absolute). An error says
// that it is none.
func Analyze(program, cwd, home string) (*Analysis, error) { return analyze(nil, program, cwd, home) }

// AnalyzeWithin is Analyze with a stop condition: it calls ended now and then in every
// loop, and returns the error that ended gives.
func AnalyzeWithin(ended func() error, program, cwd, home string) (*Analysis, error) {
	return analyze(ended, program, cwd, home)
}

// maxDepth bounds nested programs.
const maxDepth = 8

func analyze(ended func() error, program, cwd, home string) (an *Analysis, err error) {
	// A tree of a shape that nobody thought of is a program that cannot be read.
	defer func() {
		v := recover()
		if over, ok := v.(exceeded); ok {
			an, err = nil, over.err
		} else if v != nil {
			an, err = nil, holdfast.Errorf(holdfast.KindInvalid, "command", "it cannot be read: %v", v)
		}
	}()
	left := newBounds(ended)
	a := &analyzer{out: &Analysis{left: left}, left: left, homeDir: home, cwds: []string{path.Clean(cwd)}, start: path.Clean(cwd), outer: -1}
	if err := a.program(program, syntax.LangBash); err != nil {
		return nil, err
	}
	return a.out, nil
}

// analyzer walks one program; nested ones get one of their own.
type analyzer struct {
	out     *Analysis
	left    *bounds
	homeDir string
	depth   int
	// outer is the position of a nested program in the outermost one; -1 in that.
	outer int
	// cwds are the directories that the current command may run in; start is the one of
	// the outermost program.
	cwds  []string
	start string
	// assigned are the variables that the program sets, text those of them that may
	// hold more than a number.
	assigned, text map[string]bool
	// functions are the names that the program defines; wandering: one of them may
	// change the directory.
	functions map[string]bool
	wandering bool
	// roams: the program changes its directory somewhere. adrift: from here on the
	// directory may change at any time.
	roams, adrift bool
	// lent becomes Command.Lent of the commands that are found.
	lent bool
	// evaluates: variables may be set by text that is read elsewhere.
	evaluates bool
}

func (a *analyzer) pos(p syntax.Pos) int {
	if a.outer >= 0 {
		return a.outer
	}
	return int(p.Offset())
}

func (a *analyzer) opaque(code Code, pos int, subject, reason string) {
	a.out.Opaque = append(a.out.Opaque, Opaque{Code: code, Pos: pos, Subject: subject, Reason: reason})
}

// program reads a program in one dialect.
func (a *analyzer) program(text string, lang syntax.LangVariant) error {
	if i := strings.IndexAny(text, "\x00\r"); i >= 0 {
		return holdfast.Errorf(holdfast.KindInvalid, "command", "it holds %q, which shells do not agree upon", text[i])
	}
	if err := a.left.admit(text); err != nil {
		return err
	}
	f, err := syntax.NewParser(syntax.Variant(lang)).Parse(strings.NewReader(text), "")
	if err != nil {
		return holdfast.Errorf(holdfast.KindInvalid, "command", "%s", err.Error())
	}
	if err := shallow(f); err != nil {
		return err
	}
	if continuedComment(text, f) {
		return holdfast.Errorf(holdfast.KindInvalid, "command", `a comment ends with \, which shells and parsers read differently`)
	}
	a.collect(f)
	a.stmts(f.Stmts)
	return nil
}

// nested reads a program that another one would run.
func (a *analyzer) nested(text string, pos int, langs ...syntax.LangVariant) {
	if a.depth+1 > maxDepth {
		a.opaque(CodeProgram, pos, text, "programs are nested too deep")
		return
	}
	for _, lang := range langs {
		inner := &analyzer{
			out: a.out, left: a.left, homeDir: a.homeDir, depth: a.depth + 1, outer: pos, cwds: slices.Clone(a.cwds), start: a.start,
			// What is exported here is set there.
			assigned: maps.Clone(a.assigned), text: maps.Clone(a.text), evaluates: a.evaluates,
			functions: maps.Clone(a.functions), wandering: a.wandering, roams: a.roams, adrift: a.adrift, lent: a.lent,
		}
		if err := inner.program(text, lang); err != nil {
			a.opaque(CodeUnparsable, pos, text, err.Error())
			return
		}
		// Functions that eval defines are defined here too.
		maps.Copy(a.functions, inner.functions)
		a.wandering, a.roams = a.wandering || inner.wandering, a.roams || inner.roams
	}
}

// stmts reads statements that run one after the other.
func (a *analyzer) stmts(list []*syntax.Stmt) {
	for _, s := range list {
		a.stmt(s)
	}
}

// apart reads what runs in a process of its own: its cd is not ours.
func (a *analyzer) apart(f func()) {
	cwds := a.cwds
	f()
	a.cwds = cwds
}

// maybe reads what may run or not: afterwards both are possible.
func (a *analyzer) maybe(f func()) {
	before := a.cwds
	f()
	a.cwds = either(before, a.cwds)
}

// maxCwds is how many directories are followed.
const maxCwds = 8

// either is the union of two sets of directories, of which an empty one holds all.
func either(x, y []string) []string {
	if len(x) == 0 || len(y) == 0 {
		return nil
	}
	out := slices.Clone(x)
	for _, d := range y {
		if !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	if len(out) > maxCwds {
		return nil
	}
	return out
}

func (a *analyzer) stmt(s *syntax.Stmt) {
	a.left.spend(1)
	run := func() {
		for _, r := range s.Redirs {
			a.redirect(r)
		}
		a.command(s)
	}
	a.out.MoreThanCommands = a.out.MoreThanCommands || s.Coprocess || s.Disown
	if s.Background || s.Coprocess || s.Disown {
		a.apart(run)
		return
	}
	run()
}

func (a *analyzer) command(s *syntax.Stmt) {
	switch s.Cmd.(type) {
	case nil, *syntax.CallExpr, *syntax.BinaryCmd, *syntax.Subshell, *syntax.Block:
	default:
		a.out.MoreThanCommands = true
	}
	switch c := s.Cmd.(type) {
	case nil:
	case *syntax.CallExpr:
		a.call(c, s.Redirs)
	case *syntax.BinaryCmd:
		a.binary(c)
	case *syntax.Subshell:
		a.apart(func() { a.stmts(c.Stmts) })
	case *syntax.Block:
		a.stmts(c.Stmts)
	case *syntax.IfClause:
		a.ifClause(c)
	case *syntax.WhileClause:
		a.loop(c, func() { a.stmts(c.Cond); a.stmts(c.Do) })
	case *syntax.ForClause:
		a.loop(c, func() { a.forLoop(c.Loop); a.stmts(c.Do) })
	case *syntax.CaseClause:
		a.inside(c.Word)
		for _, item := range c.Items {
			for _, p := range item.Patterns {
				a.inside(p)
			}
			a.maybe(func() { a.stmts(item.Stmts) })
		}
	case *syntax.FuncDecl:
		a.function(c)
	case *syntax.TimeClause:
		if c.Stmt != nil {
			if call, ok := c.Stmt.Cmd.(*syntax.CallExpr); ok && len(call.Args) > 0 && call.Args[0].Lit() == "--" {
				a.opaque(CodeLauncher, a.pos(call.Pos()), "time --", "what time would run is hidden behind its option")
			}
			a.stmt(c.Stmt)
		}
	case *syntax.CoprocClause:
		a.apart(func() { a.stmt(c.Stmt) })
	case *syntax.DeclClause:
		a.declare(c)
	case *syntax.LetClause:
		a.emit("let", nil, a.pos(c.Pos()))
		for _, x := range c.Exprs {
			a.arithmetic(x)
		}
	case *syntax.ArithmCmd:
		a.arithmetic(c.X)
	case *syntax.TestClause:
		a.test(c.X)
	default:
		a.opaque(CodeUnparsable, a.pos(s.Pos()), "", "a construct that this checker does not know")
	}
}

func (a *analyzer) binary(c *syntax.BinaryCmd) {
	switch c.Op {
	case syntax.AndStmt:
		// The right side runs where the left one succeeded, its cd included.
		before := a.cwds
		a.stmt(c.X)
		if !isCd(c.X) {
			a.maybe(func() { a.stmt(c.Y) })
			return
		}
		a.cwds = a.after(c.X, before)
		a.stmt(c.Y)
		a.cwds = either(before, a.cwds)
	case syntax.OrStmt:
		a.stmt(c.X)
		a.maybe(func() { a.stmt(c.Y) })
	default:
		a.apart(func() { a.stmt(c.X) })
		a.apart(func() { a.stmt(c.Y) })
	}
}

func isCd(s *syntax.Stmt) bool {
	c, ok := s.Cmd.(*syntax.CallExpr)
	return ok && len(c.Args) > 0 && c.Args[0].Lit() == "cd" && !s.Negated && !s.Background && !s.Coprocess
}

// after is where a cd that succeeded leads to.
func (a *analyzer) after(s *syntax.Stmt, before []string) []string {
	both := a.cwds
	if len(both) == 0 {
		return nil
	}
	args := a.words(s.Cmd.(*syntax.CallExpr).Args)
	a.cwds = before
	to := a.destination(args[1:])
	a.cwds = both
	return to
}

func (a *analyzer) ifClause(c *syntax.IfClause) {
	a.stmts(c.Cond)
	a.maybe(func() { a.stmts(c.Then) })
	if c.Else != nil {
		a.maybe(func() { a.ifClause(c.Else) })
	}
}

// loop reads a body that may run any number of times: after a cd in it nobody
// knows where it is.
func (a *analyzer) loop(c syntax.Node, f func()) {
	before := a.cwds
	if a.movesAbout(c) {
		a.cwds, before = nil, nil
	}
	f()
	a.cwds = either(before, a.cwds)
}

// movesAbout reports whether something in a tree may change the directory.
func (a *analyzer) movesAbout(n syntax.Node) bool {
	found := false
	syntax.Walk(n, func(n syntax.Node) bool {
		a.left.step()
		if c, ok := n.(*syntax.CallExpr); ok && len(c.Args) > 0 {
			w := a.reduce(c.Args[0])
			switch w.text {
			case "cd", "pushd", "popd", "command", "builtin", "eval", "source", ".", "trap":
				found = true
			default:
				found = found || w.kind != literal || a.wandering && a.functions[w.text]
			}
		}
		return !found
	})
	return found
}

func (a *analyzer) forLoop(l syntax.Loop) {
	switch l := l.(type) {
	case *syntax.WordIter:
		a.sets(l.Name.Value, "$", a.pos(l.Name.Pos()))
		for _, w := range l.Items {
			a.inside(w)
		}
	case *syntax.CStyleLoop:
		for _, x := range []syntax.ArithmExpr{l.Init, l.Cond, l.Post} {
			if x != nil {
				a.arithmetic(x)
			}
		}
	}
}

// function reads a body that may run from anywhere later on.
func (a *analyzer) function(c *syntax.FuncDecl) {
	if c.Name == nil {
		a.opaque(CodeUnparsable, a.pos(c.Pos()), "", "a function without a name")
		return
	}
	name := c.Name.Value
	if roleOf(name) != 0 || tableOf(name) != nil || strings.Contains(name, "/") {
		a.opaque(CodeRebinding, a.pos(c.Pos()), name, "a function in the place of a command that this checker knows")
	}
	before := a.cwds
	if a.wandering || a.roams || a.evaluates {
		a.cwds = nil
	}
	a.stmt(c.Body)
	a.cwds = before
}
