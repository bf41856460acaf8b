# Ruby calls C calls Ruby, by the C extension `truth`, which notes how many frames Ruby has when each of its functions is entered.
# One line per scenario, "scenario<TAB>frame<TAB>frame...", from the root to `burn`, goes to the file ARGV[2]. Runs for ARGV[0] seconds of CPU time;
# ARGV[1] is the extension. Blocks written in C (sort_by) are left to calls.rb: rb_profile_frames tells their method a second time.
require ARGV[1]
SPIN = Integer(ENV.fetch('SPIN', '20000'))
CHAINS = {}

def burn(kind)
  CHAINS[kind] ||= Native.chain
  i = 0
  i += 1 while i < SPIN
  i
end

class Shop
  def outer(kind)
    Native.call(self, :middle, kind)
  end

  def middle(kind)
    burn(kind)
  end

  def ordered
    Native.sort { |one, other| burn(:sort); one - other }
  end

  def both
    Native.each(1) { |_| Native.sort { |one, other| Native.call(self, :middle, :both); one - other } }
  end

  def deep(left)
    left == 0 ? burn(:deep) : Native.call(self, :deep, left - 1)
  end

  def self.protected
    Native.protect { burn(:protect) }
  end

  def between
    Native.each(2) { |_| [1, 2].each { |_| [2, 1].map { |_| Native.protect { burn(:between) } } } }
  end

  def fiber
    Fiber.new { Native.each(1) { |_| burn(:fiber) } }.resume
  end
end

SHOP = Shop.new
KINDS = {
  call: -> { SHOP.outer(:call) }, each: -> { Native.each(2) { |_| burn(:each) } }, sort: -> { SHOP.ordered }, both: -> { SHOP.both },
  deep: -> { SHOP.deep(30) }, protect: -> { Shop.protected }, between: -> { SHOP.between }, fiber: -> { SHOP.fiber },
  ruby_only: -> { SHOP.middle(:ruby_only) }
}.freeze

finish = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) + Float(ARGV[0])
KINDS.each_value(&:call) while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < finish
File.write(ARGV[2], CHAINS.map { |kind, chain| [kind, *chain].join("\t") + "\n" }.join)
