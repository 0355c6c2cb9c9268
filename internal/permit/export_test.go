package permit

// Kept is how many policies of agent versions are kept.
func (p *Policies) Kept() int { return len(p.kept) }
