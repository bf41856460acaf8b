# Stacks that are known: each kind of call burns CPU time below a method of its own name, and tells what `caller` says there, once.
# One line per kind, "kind<TAB>label<TAB>label...", leaf first, goes to the file ARGV[1], or to stdout. Runs for ARGV[0] seconds of CPU time.
OUT = ARGV[1] ? File.open(ARGV[1], 'w') : $stdout
SPIN = Integer(ENV.fetch('SPIN', '20000'))

module Truth
  @seen = {}

  # Tells the stack once for each kind.
  def self.tell(kind)
    return if @seen[kind]

    @seen[kind] = true
    labels = caller_locations(2).map { |place| place.label }
    OUT.puts([kind, *labels].join("\t"))
  end
end

def burn(kind)
  Truth.tell(kind)
  i = 0
  i += 1 while i < SPIN
  i
end

class Shop
  def nested
    outer
  end

  def outer
    inner
  end

  def inner
    burn(:nested)
  end

  def each_block
    [1, 2].each { |_| burn(:each_block) }
  end

  def map_block
    [1, 2].map { |x| [x].each { |_| burn(:map_block) } }
  end

  def sorted
    [2, 1, 3].sort_by { |x| burn(:sorted); -x }
  end

  def self.factory
    burn(:singleton)
  end

  define_method(:defined) { burn(:defined) }

  def method_missing(name, *)
    name == :ghost ? burn(:missing) : super
  end

  def respond_to_missing?(name, all = false)
    name == :ghost || super
  end

  def rescued
    raise 'expected'
  rescue RuntimeError
    burn(:rescued)
  end

  def ensured
    Integer('1')
  ensure
    burn(:ensured)
  end

  def matched
    'text' =~ /t(e)xt/
    $~ && burn(:matched)
  end

  def evaluated
    eval('burn(:evaluated)')
  end

  def folded
    'abc'.gsub(/b/) { burn(:folded); 'x' }
  end

  def compared
    [Odd.new(2), Odd.new(1)].max
  end

  def fiber
    Fiber.new { burn(:fiber) }.resume
  end

  def thread
    Thread.new { burn(:thread) }.join
  end

  def lambda_call
    ->(x) { burn(:lambda); x }.call(1)
  end

  def deep(left)
    left.zero? ? burn(:deep) : deep(left - 1)
  end
end

class Odd
  include Comparable
  attr_reader :value

  def initialize(value)
    @value = value
  end

  def <=>(other)
    burn(:compared)
    value <=> other.value
  end
end

SHOP = Shop.new
KINDS = {
  nested: -> { SHOP.nested }, each: -> { SHOP.each_block }, map: -> { SHOP.map_block }, sorted: -> { SHOP.sorted },
  singleton: -> { Shop.factory }, defined: -> { SHOP.defined }, missing: -> { SHOP.ghost }, rescued: -> { SHOP.rescued },
  ensured: -> { SHOP.ensured }, matched: -> { SHOP.matched }, evaluated: -> { SHOP.evaluated }, folded: -> { SHOP.folded },
  compared: -> { SHOP.compared }, fiber: -> { SHOP.fiber }, thread: -> { SHOP.thread }, lambda: -> { SHOP.lambda_call },
  deep: -> { SHOP.deep(200) }
}.freeze

KINDS.each_value(&:call)
OUT.flush
finish = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) + Float(ARGV.fetch(0, '2'))
KINDS.each_value(&:call) while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < finish
